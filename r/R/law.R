# The law of a sum of independent noise, from its characteristic function.

# A q with P(|S| > q) <= alpha for S = sum of a[i] e[i], e independent with one law on whole numbers.
margin_of_error <- function(a, law, alpha) {
  a <- abs(a)
  a <- a[a > 1e-12 * max(a)]
  grid <- lattice_of(a)
  if (is.null(grid)) smooth_margin(a, law, alpha) else lattice_margin(a / grid, grid, law, alpha)
}

# What all weights are whole multiples of; NULL if there is nothing, or nothing coarse enough.
lattice_of <- function(a) {
  slack <- 1e-9 * max(a)
  grid <- 0
  for (x in unique(signif(a, 11))) {
    while (x > slack) {
      rest <- grid %% x
      if (x - rest < slack) rest <- 0
      grid <- x
      x <- rest
    }
    if (grid < 1e-4 * max(a)) return(NULL)
  }
  grid
}

scale_of <- function(law) if (is.null(law[["rate"]])) sigma_of(law) else 1 / ratio(law[["rate"]])

sigma_of <- function(law) {
  if (is.null(law[["sigma"]])) sqrt(ratio(law[["sigma_squared"]])) else as.numeric(law[["sigma"]])
}

# P(S = k) for whole weights n, by a discrete Fourier transform that goes around far out.
lattice_margin <- function(n, grid, law, alpha) {
  n <- round(n)
  reach <- max(14 * sqrt(sum(n^2)), 45 * max(n)) * (scale_of(law) + 1)
  points <- 2^ceiling(log2(2 * reach))
  if (points * length(unique(n)) > 3e8) return(smooth_margin(n * grid, law, alpha))
  half <- log_characteristic(n, law, 2 * pi * (0:(points / 2)) / points)
  mass <- Re(fft(c(half, rev(half[2:(points / 2)])))) / points
  tail <- rev(cumsum(rev(pmax(mass[2:(points / 2)], 0))))  # P(S >= 1), P(S >= 2), ...
  grid * (which(c(2 * tail, 0) <= alpha)[1] - 1)
}

# The same for S + tZ with a small normal variable, and room for that: at most 0.5 % too wide.
smooth_margin <- function(a, law, alpha) {
  each <- scale_of(law) + 1
  spread <- sqrt(sum(a^2)) * each
  fine <- spread / 1500
  period <- max(16 * spread, 45 * max(a) * each)
  t <- (2 * seq_len(ceiling(6.5 / fine * period / (2 * pi))) - 1) / 2 * (2 * pi / (2 * period))
  f <- log_characteristic(a, law, t) * exp(-(fine * t)^2 / 2) / t
  beyond <- function(x) 1 - 4 / pi * sum(f * sin(x * t)) * (pi / period) / 2
  share <- alpha * 0.002
  found <- uniroot(function(x) beyond(x) - (alpha - share), c(0, period / 2), tol = fine / 100)
  found$root - fine * qnorm(share / 2)
}

# The characteristic function of S at t >= 0.
log_characteristic <- function(a, law, t) {
  distinct <- unique(a)
  number <- tabulate(match(a, distinct))
  out <- rep(1, length(t))
  for (i in seq_along(distinct)) out <- out * characteristic(law, distinct[i] * t)^number[i]
  out
}

characteristic <- function(law, t) {
  if (law$family == "discrete Laplace") {
    rate <- ratio(law[["rate"]])
    return(1 / (1 + exp(-rate) * (2 * sin(t / 2) / expm1(-rate))^2))
  }
  sigma <- sigma_of(law)
  t <- (t + pi) %% (2 * pi) - pi
  around <- lapply(-3:3, function(j) t + 2 * pi * j)
  switch(law$family,
    "rounded Gaussian" = Reduce(`+`, lapply(around, function(s)
      exp(-(sigma * s)^2 / 2) * ifelse(abs(s) < 1e-8, 1, sin(s / 2) / (s / 2)))),
    "discrete Gaussian" = Reduce(`+`, lapply(around, function(s) exp(-(sigma * s)^2 / 2))) /
      sum(exp(-(sigma * 2 * pi * (-3:3))^2 / 2)),
    stop("The law `", law$family, "` is not known to this version.", call. = FALSE)
  )
}
