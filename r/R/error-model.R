# The error model: weights of figures become weights of independent noise, and these a variance.

# Weights of the noise variables, in standard deviations.
noise_weights <- function(release, w) {
  noise <- release$model$noise
  switch(noise$kind,
    margins = {
      for (by in noise$margins) w <- w - group_means(release, w, as_names(by))
      if (is.null(noise$deviations)) w else w * noise$deviations
    },
    rows = {
      shape <- as.integer(unlist(noise$rows$shape))
      if (shape[1] == 0) w else qr.resid(qr(t(dense(noise$rows)), tol = 1e-10), w)
    },
    crossing = {
      rows <- lapply(noise$margins, function(by) group_rows(release, as_names(by), length(w)))
      qr.resid(qr(t(do.call(rbind, rows)), tol = 1e-10), w)
    },
    matrix = drop(crossprod(
      matrix(as.numeric(unlist(noise$matrix$values)), length(w), byrow = TRUE), w
    )),
    interactions = interaction_weights(release, w),
    unstated = stop("Levels cross in this large table: its standard errors are those in the files ",
                    "of values and margins.", call. = FALSE),
    stop("This error model is of a kind that this version does not know.", call. = FALSE)
  )
}

# The variance of weighted noise and of rounding; 0 for what is held.
variance_of <- function(release, w, inside = noise_weights(release, w)) {
  model <- release$model
  if (sum(inside^2) <= model$zero * sum(w^2)) return(0)
  if (is.null(model$noise$variance)) return(NaN)
  model$noise$variance * sum(inside^2) + rounding_variance(release, w)
}

rounding_variance <- function(release, w) {
  rounding <- release$model$rounding
  if (is.null(rounding)) return(0)
  switch(rounding$kind,
    cumulated = cumulated_variance(release, rounding, w),
    rows = {
      rows <- rounding$rows
      if (!length(rows$rows)) return(0)
      weights <- rowsum(unlist(rows$values) * w[unlist(rows$columns) + 1], unlist(rows$rows) + 1)
      at <- as.integer(rownames(weights))
      sum(weights^2 * unlist(rounding$variances)[at])
    },
    "at most" = rounding$variance * sum(abs(w))^2,
    stop("This error model rounds in a way that this version does not know.", call. = FALSE)
  )
}

# Entries of the cumulated table: the weight of a cell less those that follow along each axis.
cumulated_variance <- function(release, rounding, w) {
  shape <- release$tables[[1]]$shape
  names <- vapply(release$axes, function(axis) axis$name, "")
  place <- lapply(rounding$axes, function(merged) {
    position <- 0
    for (a in match(as_names(merged$members), names)) {
      position <- position * shape[a] + codes_on(shape, a) - 1
    }
    order(unlist(merged$order))[position + 1]
  })
  dims <- vapply(rounding$axes, function(merged) length(unlist(merged$order)), 0L)
  table <- array(0, dims)
  table[do.call(cbind, place)] <- w
  for (a in seq_along(dims)) {
    lines <- matrix(aperm(table, c(a, seq_along(dims)[-a])), dims[a])
    lines <- lines - rbind(lines[-1, , drop = FALSE], 0)
    table <- aperm(array(lines, dims[c(a, seq_along(dims)[-a])]),
                   order(c(a, seq_along(dims)[-a])))
  }
  by_row <- as.vector(aperm(table, rev(seq_along(dims)))) * rounding$step
  sum(by_row^2 * unlist(rounding$variances)[unlist(rounding$variance_of) + 1])
}

group_means <- function(release, w, by) {
  if (!length(by)) return(rep(mean(w), length(w)))
  margin <- table_of(release, by)
  code <- group_codes(release, release$tables[[1]], margin)
  sums <- rowsum(w, code)
  (sums / tabulate(code)[as.integer(rownames(sums))])[match(code, as.integer(rownames(sums)))]
}

# The number of the group of a margin that every row of a table is in, in row-major order; NA for
# rows in no group.
group_codes <- function(release, table, margin) {
  code <- 0
  for (a in seq_along(release$axes)) {
    if (!margin$level[a]) next
    up <- parents(release$axes[[a]], table$level[a], margin$level[a])
    code <- code * margin$shape[a] + up[codes_on(table$shape, a)] - 1
  }
  as.integer(rep(code, length.out = prod(table$shape)) + 1)
}

# One row of zeros and ones for every group of a margin.
group_rows <- function(release, by, cells) {
  margin <- table_of(release, by)
  code <- group_codes(release, release$tables[[1]], margin)
  check_dense(prod(margin$shape) * cells)
  out <- matrix(0, prod(margin$shape), cells)
  inside <- which(!is.na(code))
  out[cbind(code[inside], inside)] <- 1
  out
}

check_dense <- function(entries) {
  if (entries > 5e7) stop("These held sums are too many for R; use Python.", call. = FALSE)
}

dense <- function(sparse) {
  shape <- as.integer(unlist(sparse$shape))
  check_dense(prod(shape))
  out <- matrix(0, shape[1], shape[2])
  out[cbind(unlist(sparse$rows) + 1, unlist(sparse$columns) + 1)] <- unlist(sparse$values)
  out
}
