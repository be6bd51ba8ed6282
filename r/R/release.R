# Reading: the folder of a release becomes figures with labels, certificate and error model.

read_release <- function(folder) {
  certificate <- read_json(file.path(folder, "certificate.json"), "it is not a release")
  model <- read_json(
    file.path(folder, "error-model.json"),
    "publish it with a version of subspacedp that writes error models"
  )
  if (!identical(model$format, "subspacedp error model 1")) {
    stop("The error model is not one that this version can read.", call. = FALSE)
  }
  if (!identical(model$design_sha256, certificate$design_sha256)) {
    stop("The error model is not that of the certificate.", call. = FALSE)
  }
  release <- list(
    folder = folder, certificate = certificate, model = model, axes = axes_of(certificate)
  )
  release$tables <- tables_of(release)
  release$figures <- read_figures(release)
  structure(release, class = "subspacedp_release")
}

read_json <- function(file, otherwise) {
  if (!file.exists(file)) stop("There is no ", file, ": ", otherwise, ".", call. = FALSE)
  jsonlite::fromJSON(file, simplifyDataFrame = FALSE, simplifyMatrix = FALSE)
}

# Labels and codes as text; whole numbers are written out in full.
as_text <- function(x) {
  x <- unlist(x)
  if (is.numeric(x)) format(x, scientific = FALSE, trim = TRUE, digits = 15) else as.character(x)
}

as_names <- function(x) as.character(unlist(x))

# "3/2" or 3 as a number.
ratio <- function(x) {
  parts <- as.numeric(strsplit(as.character(x), "/")[[1]])
  parts[1] / c(parts, 1)[2]
}

# Every axis with its levels, the labels first: names of groups, and the group of each label from 1.
axes_of <- function(certificate) {
  lapply(certificate$design$query$domain, function(axis) {
    labels <- axis$labels
    if (!is.null(names(labels))) {
      labels <- seq(labels$start, by = labels$step,
                    length.out = max(0, ceiling((labels$stop - labels$start) / labels$step)))
    }
    labels <- as_text(labels)
    levels <- list(list(name = axis$name, groups = labels, of = seq_along(labels)))
    for (level in axis$levels) {
      levels <- c(levels, list(list(
        name = level$name, groups = as_text(level$groups),
        of = as.integer(unlist(level$of_each_label)) + 1L
      )))
    }
    chain <- length(levels)
    for (level in axis$groupings) {  # beside the levels; NA for a label in no group
      of <- vapply(as.list(level$of_each_label), function(g)
        if (is.null(g)) NA_integer_ else as.integer(g) + 1L, 0L)
      levels <- c(levels, list(list(name = level$name, groups = as_text(level$groups), of = of)))
    }
    list(name = axis$name, labels = labels, levels = levels, chain = chain)
  })
}

# The tables that the figures are of, one after another: levels by axis; NULL for an axis added up.
tables_of <- function(release) {
  query <- release$certificate$design$query
  if (!length(release$axes)) return(NULL)
  named <- if (identical(query$kind, "margins")) lapply(query$margins, as_names) else
    list(vapply(release$axes, function(axis) axis$name, ""))
  at <- 0
  lapply(named, function(names) {
    table <- table_of(release, names)
    table$start <- at
    at <<- at + prod(table$shape)
    table
  })
}

# A table by the names of its levels: on every axis the number of the level, 0 where it is added up.
table_of <- function(release, names) {
  level <- vapply(release$axes, function(axis) {
    found <- which(vapply(axis$levels, function(l) l$name, "") %in% names)
    if (length(found) > 1) stop("Two levels of one axis are named.", call. = FALSE)
    if (length(found)) found else 0L
  }, 0L)
  known <- unlist(lapply(release$axes, function(axis) vapply(axis$levels, function(l) l$name, "")))
  unknown <- setdiff(names, known)
  if (length(unknown)) {
    stop("There is no axis or level `", unknown[1], "`; there are ", toString(known), ".",
         call. = FALSE)
  }
  shape <- mapply(function(axis, l) if (l) length(axis$levels[[l]]$groups) else 1L,
                  release$axes, level)
  list(level = level, shape = as.integer(shape), names = names)
}

# The group of every row on one axis, for rows in row-major order of a shape.
codes_on <- function(shape, a) {
  inner <- prod(shape[-seq_len(a)])
  rep(rep(seq_len(shape[a]), each = inner), length.out = prod(shape))
}

# From groups of one level to those of a coarser one; NA for groups without labels.
parents <- function(axis, fine, coarse) {
  if (coarse == 0L) return(rep(1L, length(axis$levels[[fine]]$groups)))
  out <- rep(NA_integer_, length(axis$levels[[fine]]$groups))
  inside <- !is.na(axis$levels[[fine]]$of)
  out[axis$levels[[fine]]$of[inside]] <- axis$levels[[coarse]]$of[inside]
  out
}

read_figures <- function(release) {
  file <- file.path(release$folder, "values.csv")
  if (file.exists(file)) {
    figures <- read_table(file)
    if (nrow(figures) != release$model$figures) {
      stop("values.csv does not have the rows of its certificate.", call. = FALSE)
    }
    return(figures)
  }
  file <- file.path(release$folder, "values.npy")
  if (!file.exists(file)) return(NULL)  # in a store that R does not read; margins have files
  data.frame(value = read_npy(file, release$model$figures))
}

# Labels stay text: 01001 keeps its zero, and NA is a label.
read_table <- function(file) {
  table <- read.csv(file, colClasses = "character", check.names = FALSE, na.strings = character(0),
                    encoding = "UTF-8", fileEncoding = "")
  numbers <- intersect(c("value", "stderr", "lower", "upper"), names(table))
  table[numbers] <- lapply(table[numbers], as.numeric)
  table
}

# One array of little-endian 64-bit numbers, as numpy.save writes it.
read_npy <- function(file, count) {
  con <- file(file, "rb")
  on.exit(close(con))
  if (!identical(readBin(con, "raw", 6), as.raw(c(0x93, utf8ToInt("NUMPY"))))) {
    stop(file, " is not a .npy file.", call. = FALSE)
  }
  version <- readBin(con, "integer", 2, size = 1)
  length <- readBin(con, "integer", 1, size = if (version[1] == 1L) 2 else 4, endian = "little",
                    signed = version[1] != 1L)
  header <- rawToChar(readBin(con, "raw", length))
  if (grepl("<f8", header, fixed = TRUE)) return(readBin(con, "double", count, endian = "little"))
  halves <- matrix(readBin(con, "integer", 2 * count, endian = "little"), 2)
  halves[2, ] * 2^32 + halves[1, ] %% 2^32
}

where <- function(release, ...) {
  wanted <- list(...)
  if (is.null(release$tables)) stop("The figures of this release have no axes.", call. = FALSE)
  need <- table_of(release, names(wanted))
  source <- source_of(release, need)
  keep <- rep(TRUE, prod(source$shape))
  for (a in seq_along(release$axes)) {
    if (!need$level[a]) next
    axis <- release$axes[[a]]
    groups <- axis$levels[[need$level[a]]]$groups
    chosen <- as_text(wanted[[axis$levels[[need$level[a]]]$name]])
    if (!all(chosen %in% groups)) {
      stop("There is no label `", setdiff(chosen, groups)[1], "` in `",
           axis$levels[[need$level[a]]]$name, "`.", call. = FALSE)
    }
    up <- parents(axis, source$level[a], need$level[a])
    keep <- keep & (groups[up] %in% chosen)[codes_on(source$shape, a)]
  }
  out <- numeric(release$model$figures)
  out[source$start + which(keep)] <- 1
  out
}

# The smallest table that a margin can be added up from.
source_of <- function(release, need) {
  finer <- function(table) all(mapply(determines, release$axes, table$level, need$level))
  able <- Filter(finer, release$tables)
  if (!length(able)) {
    stop("No published table has ", paste(need$names, collapse = " by "), ".", call. = FALSE)
  }
  able[[which.min(vapply(able, function(table) prod(table$shape), 0))]]
}

# Whether a level or grouping tells another one; 0 is everything in one group.
determines <- function(axis, fine, coarse) {
  if (fine == coarse || fine == 1L) return(TRUE)
  if (fine == 0L || fine > axis$chain) return(FALSE)
  coarse == 0L || (coarse <= axis$chain && fine < coarse)
}

print.subspacedp_release <- function(x, ...) {
  cat("A release of ", format(x$model$figures, big.mark = ","), " figures\n", sep = "")
  cat(strwrap(x$certificate$guarantee$statement, 79), sep = "\n")
  if (!isTRUE(x$certificate$for_publication)) cat("NOT FOR PUBLICATION: made from a chosen seed.\n")
  cat("\n")
  if (is.null(x$figures)) cat("The values are in a store that R does not read.\n") else
    print(utils::head(x$figures))
  invisible(x)
}
