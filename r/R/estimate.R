# Weighted sums of figures, margins, and intervals.

estimate <- function(release, weights) {
  w <- as.numeric(weights)
  if (length(w) != release$model$figures || !all(is.finite(w))) {
    stop("`weights` must be ", release$model$figures, " finite numbers, one for every figure; got ",
         length(w), ".", call. = FALSE)
  }
  inside <- noise_weights(release, w)
  variance <- variance_of(release, w, inside)
  structure(
    list(value = if (is.null(release$figures)) NA_real_ else sum(w * release$figures$value),
         stderr = sqrt(variance), inside = inside,
         law = release$model$noise$law, rounded = rounding_variance(release, w) > 0),
    class = "subspacedp_estimate"
  )
}

margin <- function(release, ..., level = 0.95) {
  names <- c(...)
  need <- table_of(release, names)
  order <- vapply(which(need$level > 0), function(a)
    release$axes[[a]]$levels[[need$level[a]]]$name, "")
  stem <- if (length(order)) paste(order, collapse = "-by-") else "total"
  file <- file.path(release$folder, "margins", paste0(stem, ".csv"))
  if (file.exists(file) && level == 0.95) {
    return(structure(read_table(file), method = "published"))
  }
  source <- source_of(release, need)
  code <- group_codes(release, source, need)
  rows <- source$start + seq_along(code)
  out <- group_labels(release, need)
  estimates <- lapply(seq_len(nrow(out)), function(g) {
    w <- numeric(release$model$figures)
    w[rows[which(code == g)]] <- 1
    estimate(release, w)
  })
  ends <- vapply(estimates, function(one) as.numeric(interval(one, level)), c(0, 0))
  out$value <- vapply(estimates, function(one) one$value, 0)
  out$stderr <- vapply(estimates, function(one) one$stderr, 0)
  out$lower <- ends[1, ]
  out$upper <- ends[2, ]
  structure(out, method = unique(vapply(estimates, method_of, "")))
}

# The labels of every group of a margin, in row-major order.
group_labels <- function(release, margin) {
  out <- data.frame(row.names = seq_len(prod(margin$shape)))
  for (a in which(margin$level > 0)) {
    level <- release$axes[[a]]$levels[[margin$level[a]]]
    out[[level$name]] <- level$groups[codes_on(margin$shape, a)]
  }
  out
}

interval <- function(x, level = 0.95) {
  if (!inherits(x, "subspacedp_estimate")) {
    stop("`interval` is of an `estimate`; margins have their limits in columns.", call. = FALSE)
  }
  if (!is.numeric(level) || length(level) != 1 || !(level > 0 && level < 1)) {
    stop("`level` must be a number between 0 and 1.", call. = FALSE)
  }
  alpha <- 1 - level
  half <- switch(method_of(x),
    fixed = 0,
    normal = -qnorm(alpha / 2) * x$stderr,
    margin_of_error(x$inside * x$law$unit, x$law, alpha)
  )
  structure(c(lower = x$value - half, upper = x$value + half), method = method_of(x))
}

# "fixed" by held totals; "exact" where all noise is independent, of one law, and not rounded.
method_of <- function(x) {
  if (!is.na(x$stderr) && x$stderr == 0) return("fixed")
  if (is.null(x$law) || x$rounded) "normal" else "exact"
}

print.subspacedp_estimate <- function(x, level = 0.95, ...) {
  ends <- interval(x, level)
  cat(format(x$value), " (standard error ", format(x$stderr), "; ", 100 * level,
      " % interval from ", format(ends[[1]]), " to ", format(ends[[2]]), ", ",
      attr(ends, "method"), ")\n", sep = "")
  invisible(x)
}

plot.subspacedp_release <- function(x, ..., most = 40, level = 0.95) {
  figures <- utils::head(x$figures, most)
  if (is.null(figures$stderr)) {
    stop("These figures have no standard errors beside them.", call. = FALSE)
  }
  half <- -qnorm((1 - level) / 2) * figures$stderr
  labels <- do.call(paste, c(figures[setdiff(names(figures), c("value", "stderr"))], sep = ", "))
  at <- rev(seq_len(nrow(figures)))
  wide <- min(20, max(nchar(labels), 4) * 0.5 + 1)
  old <- par(mar = c(4, wide, 1, 1))
  on.exit(par(old))
  plot(figures$value, at, xlim = range(figures$value - half, figures$value + half), yaxt = "n",
       ylab = "", xlab = paste0("value, with ", 100 * level, " % normal intervals"), pch = 19, ...)
  segments(figures$value - half, at, figures$value + half, at)
  axis(2, at, labels, las = 1, cex.axis = 0.7)
  invisible(x)
}
