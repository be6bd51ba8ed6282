# SHA-256 of a file: by R 4.5, by the system's own command, or in R, half a minute for a megabyte.

sha256_file <- function(file) {
  if (exists("sha256sum", asNamespace("tools"), inherits = FALSE)) {
    return(unname(get("sha256sum", asNamespace("tools"))(file)))
  }
  command <- Sys.which(c("sha256sum", "shasum"))
  if (nzchar(command[["sha256sum"]])) {
    said <- system2(command[["sha256sum"]], shQuote(normalizePath(file)), stdout = TRUE)
    return(sub("^\\\\", "", substr(said, 1, 65 - !startsWith(said, "\\"))))
  }
  sha256(readBin(file, "raw", file.size(file)))
}

sha256_raw <- function(bytes) {
  if (exists("sha256sum", asNamespace("tools"), inherits = FALSE)) {
    return(unname(get("sha256sum", asNamespace("tools"))(bytes = bytes)))
  }
  file <- tempfile()
  on.exit(unlink(file))
  writeBin(bytes, file)
  sha256_file(file)
}

# Of a large table: SHA-256 of a byte 1 and the digests of chunks, each of a byte 0 and the chunk.
tree_file <- function(file) {
  input <- file(file, "rb")
  on.exit(close(input))
  leaves <- list(as.raw(1))
  while (length(chunk <- readBin(input, "raw", 2^18))) {
    leaf <- sha256_raw(c(as.raw(0), chunk))
    leaves <- c(leaves, list(as.raw(strtoi(substring(leaf, 2 * 1:32 - 1, 2 * 1:32), 16))))
  }
  paste0("tree-1:", sha256_raw(unlist(leaves)))
}

# The digest of a file, of the kind that is stated of it.
digest_file <- function(file, stated) {
  if (startsWith(stated, "tree-1:")) tree_file(file) else sha256_file(file)
}

primes <- function(n) {
  out <- integer(0)
  k <- 2L
  while (length(out) < n) {
    if (all(k %% out[out * out <= k] != 0)) out <- c(out, k)
    k <- k + 1L
  }
  out
}

# Words are doubles from 0 to 2^32 - 1, which R's whole numbers cannot hold; bits are combined in
# halves.
combined <- function(fun) function(x, y) {
  65536 * fun(floor(x / 65536), floor(y / 65536)) + fun(x %% 65536, y %% 65536)
}
xor_words <- combined(bitwXor)
and_words <- combined(bitwAnd)
rotate <- function(x, n) floor(x / 2^n) + (x %% 2^n) * 2^(32 - n)
xor_three <- function(x, a, b, c) xor_words(xor_words(rotate(x, a), rotate(x, b)), c)

sha256 <- function(bytes) {
  # The first 32 bits of the fractions of roots of primes.
  fraction <- function(root) floor((root - floor(root)) * 2^32)
  K <- fraction(primes(64)^(1 / 3))
  H <- fraction(sqrt(primes(8)))
  length <- length(bytes)
  bytes <- c(bytes, as.raw(0x80), raw((55 - length) %% 64))
  bytes <- c(as.integer(bytes), rev(floor(length * 8 / 256^(0:7)) %% 256))
  words <- colSums(matrix(bytes, 4) * 256^(3:0))
  for (at in seq(0, length(words) - 16, by = 16)) {
    W <- c(words[at + 1:16], numeric(48))
    for (t in 17:64) {
      s0 <- xor_three(W[t - 15], 7, 18, floor(W[t - 15] / 2^3))
      s1 <- xor_three(W[t - 2], 17, 19, floor(W[t - 2] / 2^10))
      W[t] <- (W[t - 16] + s0 + W[t - 7] + s1) %% 2^32
    }
    v <- H
    for (t in 1:64) {
      S1 <- xor_three(v[5], 6, 11, rotate(v[5], 25))
      choice <- xor_words(and_words(v[5], v[6]), and_words(2^32 - 1 - v[5], v[7]))
      first <- v[8] + S1 + choice + K[t] + W[t]
      S0 <- xor_three(v[1], 2, 13, rotate(v[1], 22))
      major <- xor_words(and_words(v[1], xor_words(v[2], v[3])), and_words(v[2], v[3]))
      v <- c(first + S0 + major, v[1:3], v[4] + first, v[5:7]) %% 2^32
    }
    H <- (H + v) %% 2^32
  }
  paste(sprintf("%04x%04x", as.integer(floor(H / 65536)), as.integer(H %% 65536)), collapse = "")
}
