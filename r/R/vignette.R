# Vignettes are Markdown of headings, paragraphs and code, woven without further packages.

.onLoad <- function(libname, pkgname) {
  tools::vignetteEngine("page", weave = weave_page, tangle = tangle_page, pattern = "[.]Rpage$",
                        package = pkgname)
}

page_parts <- function(file) {
  lines <- readLines(file, encoding = "UTF-8")
  lines <- lines[!grepl("^%", lines)]
  fence <- grepl("^```", lines)
  code <- cumsum(fence) %% 2 == 1 & !fence
  part <- cumsum(c(TRUE, code[-1] != code[-length(code)] | fence[-1]))
  keep <- !fence & (code | nzchar(trimws(lines)))
  block <- ifelse(code, part, cumsum(!nzchar(trimws(lines))) + 0.5 + part)
  parts <- split(seq_along(lines)[keep], factor(block[keep], unique(block[keep])))
  lapply(parts, function(at) list(code = code[at[1]], lines = lines[at]))
}

weave_page <- function(file, ...) {
  space <- new.env(parent = globalenv())
  html <- function(x) gsub("<", "&lt;", gsub("&", "&amp;", x, fixed = TRUE), fixed = TRUE)
  body <- unlist(lapply(page_parts(file), function(part) {
    if (part$code) {
      said <- utils::capture.output(for (one in parse(text = part$lines)) {
        result <- withVisible(eval(one, space))
        if (result$visible) print(result$value)
      })
      return(c("<pre><code>", html(part$lines), "</code></pre>",
               if (length(said)) c("<pre>", html(said), "</pre>")))
    }
    text <- gsub("`([^`]+)`", "<code>\\1</code>", paste(html(part$lines), collapse = " "))
    if (grepl("^#", text)) return(paste0("<h2>", sub("^#+ *", "", text), "</h2>"))
    paste0("<p>", text, "</p>")
  }))
  out <- sub("[.]Rpage$", ".html", basename(file))
  writeLines(c("<!DOCTYPE html>", "<html lang=\"en\">", "<head><meta charset=\"utf-8\">",
               "<title>Figures of a release in R</title></head>", "<body>", body, "</body>",
               "</html>"), out)
  out
}

tangle_page <- function(file, ...) {
  out <- sub("[.]Rpage$", ".R", basename(file))
  code <- Filter(function(part) part$code, page_parts(file))
  writeLines(unlist(lapply(code, function(part) c(part$lines, ""))), out)
  out
}
