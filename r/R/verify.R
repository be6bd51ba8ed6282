# Checks of a folder: files as they were published, exact totals, margins that agree.

verify <- function(release) {
  if (is.character(release)) release <- read_release(release)
  checks <- rbind(check_successor(release), check_digests(release), check_totals(release),
                  check_margins(release))
  structure(checks, class = c("subspacedp_verification", "data.frame"))
}

a_check <- function(check, ok, detail) data.frame(check = check, ok = ok, detail = detail)

# A note that the release was replaced comes after its digests.
check_successor <- function(release) {
  file <- file.path(release$folder, "replaced-by.json")
  if (!file.exists(file)) return(NULL)
  stated <- tryCatch(read_json(file, ""), error = function(e) NULL)
  digest <- sha256_file(file.path(release$folder, "certificate.json"))
  about <- vapply(stated$releases, function(one) identical(one$certificate_sha256, digest), TRUE)
  if (!any(about)) return(a_check("replaced", FALSE, "replaced-by.json is about other releases"))
  a_check("replaced", TRUE, paste0(
    "there is a newer one: `", stated$replaced_by$folder, "` (R checks no signature of that note)"
  ))
}

# Digests are listed by the signature, where there is one.
check_digests <- function(release) {
  lists <- c("digests.json", "signature.json")
  list <- lists[file.exists(file.path(release$folder, lists))]
  if (!length(list)) {
    return(a_check("digests", FALSE,
                   "there is no digests.json or signature.json: nothing shows that files are whole"))
  }
  stated <- unlist(read_json(file.path(release$folder, list[1]), "")$files)
  present <- setdiff(list.files(release$folder, recursive = TRUE, all.files = TRUE),
                     c(lists, "replaced-by.json"))
  missing <- c(setdiff(names(stated), present), setdiff(present, names(stated)))
  if (length(missing)) {
    return(a_check("digests", FALSE, paste0("`", missing[1], "` is missing, or not listed")))
  }
  found <- mapply(digest_file, file.path(release$folder, names(stated)), stated)
  wrong <- names(stated)[found != stated]
  a_check("digests", !length(wrong), if (length(wrong)) paste0("`", wrong[1], "` was altered") else
    paste0(length(stated), " files are as ", list[1], " has them",
           if ("signature.json" %in% list) " (R does not check who signed)"))
}

# Held totals, from the figures and as the certificate states them.
check_totals <- function(release) {
  held <- release$certificate$design$held
  if (!length(held)) return(a_check("held totals", TRUE, "nothing is held"))
  if (is.null(release$figures)) {
    return(a_check("held totals", TRUE, "not checked: R does not read the store of the values"))
  }
  stated <- unlist(lapply(release$certificate$invariants, function(one) unlist(one$values))) *
    grid_of(release$certificate$design$query)
  sums <- unlist(lapply(held, held_sums, release = release))
  if (anyNA(sums)) return(a_check("held totals", TRUE, "not all follow from published tables"))
  whole <- identical(release$certificate$values$type, "int64")
  ok <- length(sums) == length(stated) && if (whole) all(sums == stated) else
    all(abs(sums - stated) <= 1e-9 * max(1, abs(stated), abs(release$figures$value)))
  a_check("held totals", ok, paste0(
    length(stated), if (ok) " agree" else " do not all agree", if (whole) ", in whole numbers" else ""
  ))
}

held_sums <- function(held, release) {
  value <- release$figures$value
  if (!is.null(held$linear)) return(drop(dense(held$linear) %*% value))
  if (!is.null(held$zeros)) return(value[unlist(held$zeros) + 1])
  need <- table_of(release, as_names(held$margin))
  source <- tryCatch(source_of(release, need), error = function(e) NULL)
  if (is.null(source)) return(NA)
  code <- group_codes(release, source, need)
  inside <- which(!is.na(code))
  sums <- rowsum(value[source$start + inside], code[inside])
  out <- numeric(prod(need$shape))
  out[as.integer(rownames(sums))] <- sums
  out
}

# One unit of held values, in those of the figures.
grid_of <- function(query) {
  if (!is.null(query$unit)) return(query$unit)
  if (!is.null(query$grid)) ratio(query$grid) else 1
}

# Published margins follow from the figures, and their standard errors from the error model.
check_margins <- function(release) {
  if (is.null(release$figures)) return(NULL)
  files <- list.files(file.path(release$folder, "margins"), "[.]csv$", full.names = TRUE)
  do.call(rbind, lapply(files, function(file) {
    table <- read_table(file)
    names <- setdiff(names(table), c("value", "stderr", "lower", "upper"))
    again <- margin(structure(within_folder(release, ""), class = class(release)), names)
    scale <- max(1, abs(release$figures$value))
    ok <- nrow(again) == nrow(table) &&
      all(vapply(names, function(n) identical(again[[n]], table[[n]]), TRUE)) &&
      all(abs(again$value - table$value) <= 1e-9 * scale) &&
      all(abs(again$stderr - table$stderr) <= 1e-6 * (1e-6 + table$stderr))
    a_check(paste0("margins/", basename(file)), ok, paste(nrow(table), "rows"))
  }))
}

within_folder <- function(release, folder) {
  release <- unclass(release)
  release$folder <- folder
  release
}

print.subspacedp_verification <- function(x, ...) {
  cat(sprintf("%-4s %-24s %s\n", ifelse(x$ok, "ok", "FAIL"), x$check, x$detail), sep = "")
  cat(if (all(x$ok)) "All checks hold.\n" else "NOT all checks hold.\n")
  if (!all(x$ok)) invisible(x)
  invisible(x)
}
