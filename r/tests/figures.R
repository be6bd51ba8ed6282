library(subspacedp)
folder <- system.file("extdata", "release", package = "subspacedp")
release <- read_release(folder)

# The published standard errors are those of the error model.
n <- nrow(release$figures)
found <- vapply(seq_len(n), function(i) estimate(release, as.numeric(seq_len(n) == i))$stderr, 0)
stopifnot(abs(found - release$figures$stderr) < 1e-9)

# What is held is exact; errors are correlated.
total <- estimate(release, where(release, state = "DE"))
stopifnot(total$stderr == 0, attr(interval(total), "method") == "fixed", total$value == 897)
women <- estimate(release, where(release, sex = "F", state = "DE"))
stopifnot(women$stderr < sqrt(sum((where(release, sex = "F", state = "DE") * found)^2)))

# Intervals of the law are no normal ones, and grow with the level.
kent <- estimate(release, where(release, county = "Kent", sex = "F"))
half <- diff(interval(kent)) / 2
stopifnot(attr(interval(kent), "method") == "exact", abs(half / (1.96 * kent$stderr) - 1) > 0.001,
          diff(interval(kent, 0.99)) > diff(interval(kent, 0.9)))

# A margin from its file, and worked out.
published <- margin(release, "state", "sex")
again <- margin(release, "state", "sex", level = 0.9)
stopifnot(attr(published, "method") == "published", abs(published$stderr - again$stderr) < 1e-9,
          published$lower <= again$lower)

# Altered files are noticed.
stopifnot(all(verify(release)$ok))
copy <- file.path(tempdir(), "altered")
dir.create(copy)
invisible(file.copy(list.files(folder, full.names = TRUE), copy, recursive = TRUE))
file <- file.path(copy, "values.csv")
lines <- readLines(file)
lines[2] <- sub('[0-9.]+,([0-9.]+)$', '1000,\\1', lines[2])
writeLines(lines, file)
checks <- verify(copy)
stopifnot(!checks$ok[checks$check == "digests"], !checks$ok[checks$check == "held totals"])

# The digest without help of the system: the vectors of FIPS 180-2.
sha256 <- subspacedp:::sha256
stopifnot(
  sha256(charToRaw("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  sha256(raw(0)) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
  sha256(charToRaw("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
)

# Errors say what is wrong.
message_of <- function(x) tryCatch({x; ""}, error = conditionMessage)
stopifnot(
  grepl("no axis or level `town`", message_of(margin(release, "town"))),
  grepl("no label `Berlin`", message_of(where(release, county = "Berlin"))),
  grepl("10 finite numbers", message_of(estimate(release, 1:3))),
  grepl("not a release", message_of(read_release(tempdir())))
)
