# Noise on contrasts of interactions or on whole tables, through least squares up and down a tree.
#
# Arrays have the groups of the tree first, then one dimension for every other axis. A `step` is the
# number of a level in use, the finest first; the last has everything in one group.

interaction_weights <- function(release, w) {
  noise <- release$model$noise
  plan <- least_squares_plan(release)
  if (!is.null(noise$empty)) {
    cells <- unlist(noise$empty$cells) + 1
    gain <- matrix(as.numeric(unlist(noise$empty$gain$values)), length(cells), byrow = TRUE)
    w[cells] <- 0
    w[cells] <- -drop(gain %*% w)
  }
  tables <- split_weights(release, plan, w)
  measured <- lapply(noise$measured, function(m) {
    steps <- steps_of(plan, as_names(m$levels))
    list(steps = steps, variance = m$variance, array = array(0, plan_dim(plan, m$level + 1, steps)))
  })
  out <- list()
  for (interaction in noise$interactions) {
    steps <- steps_of(plan, as_names(interaction$contrasts))
    by_level <- list()
    for (table in tables) {
      if (!all(table$steps <= steps) || !any(table$array != 0)) next
      at <- as.character(table$level)
      gathered <- gather(plan, table$array, table$steps, steps)
      by_level[[at]] <- if (is.null(by_level[[at]])) gathered else by_level[[at]] + gathered
    }
    if (!length(by_level)) next
    for (found in smoother_weights(plan, interaction, by_level)) {
      inner <- contrasts_of(plan, found$array, steps)
      stated <- found$stated
      if (length(measured)) {
        for (pair in stated$mixing) {
          t <- pair[[1]] + 1
          measured[[t]]$array <- measured[[t]]$array +
            pair[[2]] * spread_to(plan, inner, steps, measured[[t]]$steps)
        }
      } else if (!is.null(stated$grid)) {
        out <- c(out, list(as.vector(inner * deviations(plan, found, steps, stated$grid))))
      }
    }
  }
  for (m in measured) {
    present <- outer_over(plan, m$steps, function(axis, step) axis$sizes[[step]] > 0)
    inside <- m$array * rep(present, each = dim(m$array)[1])
    out <- c(out, list(as.vector(inside) * sqrt(m$variance)))
  }
  unlist(out)
}

least_squares_plan <- function(release) {
  noise <- release$model$noise
  used <- lapply(seq_along(noise$axes), function(a) {
    axis <- release$axes[[a]]
    names <- vapply(axis$levels, function(level) level$name, "")
    levels <- match(as_names(noise$axes[[a]]$levels), names)
    of <- c(lapply(levels, function(l) axis$levels[[l]]$of), list(rep(1L, length(axis$labels))))
    groups <- c(vapply(levels, function(l) length(axis$levels[[l]]$groups), 0L), 1L)
    up <- lapply(seq_along(levels), function(s) {
      parent <- rep(1L, groups[s])
      parent[of[[s]]] <- of[[s + 1]]
      parent
    })
    sizes <- mapply(function(codes, n) tabulate(codes, n), of, groups, SIMPLIFY = FALSE)
    siblings <- lapply(seq_along(levels), function(s) {
      number <- tabulate(up[[s]][sizes[[s]] > 0], groups[s + 1])
      ifelse(sizes[[s]] > 0, number[up[[s]]], 0)
    })
    list(name = axis$name, names = names[levels], levels = levels, groups = groups, up = up,
         sizes = sizes, siblings = siblings)
  })
  place <- if (is.null(noise$tree)) 0L else
    match(noise$tree, vapply(used, function(axis) axis$name, ""))
  tree <- if (place) used[[place]] else
    list(groups = 1L, up = list(), sizes = list(1L), names = character(0))
  list(used = used, place = place, tree = tree, axes = used[setdiff(seq_along(used), place)],
       regions = lapply(noise$regions, unlist))
}

# Steps on the axes beside the tree, from names of levels.
steps_of <- function(plan, names) {
  vapply(plan$axes, function(axis) {
    found <- which(axis$names %in% names)
    if (length(found)) found else length(axis$groups)
  }, 0L)
}

plan_dim <- function(plan, level, steps) {
  c(plan$tree$groups[level], mapply(function(axis, s) axis$groups[s], plan$axes, steps))
}

# Weights of every table, the tree first.
split_weights <- function(release, plan, w) {
  lapply(release$tables, function(table) {
    part <- w[table$start + seq_len(prod(table$shape))]
    array <- aperm(array(part, rev(table$shape)), rev(seq_along(table$shape)))
    step <- mapply(function(axis, level) if (level) match(level, axis$levels) else
      length(axis$groups), plan$used, table$level)
    others <- setdiff(seq_along(plan$used), plan$place)
    if (plan$place) {
      array <- aperm(array, c(plan$place, others))
      level <- step[plan$place]
    } else {
      dim(array) <- c(1L, dim(array))
      level <- 1L
    }
    present <- plan$tree$sizes[[level]] > 0
    list(level = level, steps = as.integer(step[others]), array = array * present)
  })
}

# Apply a function to an array as a matrix whose rows run along one dimension.
along <- function(array, d, fun) {
  dims <- dim(array)
  perm <- c(d, seq_along(dims)[-d])
  lines <- fun(matrix(aperm(array, perm), dims[d]))
  aperm(array(lines, c(nrow(lines), dims[-d])), order(perm))
}

sum_groups <- function(lines, codes, groups) {
  sums <- rowsum(lines, codes)
  out <- matrix(0, groups, ncol(lines))
  out[as.integer(rownames(sums)), ] <- sums
  out
}

# From groups of one step to those of a coarser one.
ancestors <- function(axis, fine, coarse) {
  out <- seq_len(axis$groups[fine])
  while (fine < coarse) {
    out <- axis$up[[fine]][out]
    fine <- fine + 1L
  }
  out
}

# The share of every fine group when a coarse total is split equally, step by step.
path_of <- function(axis, fine, coarse) {
  out <- as.numeric(axis$sizes[[fine]] > 0)
  for (s in seq_len(coarse - fine) + fine - 1L) {
    k <- axis$siblings[[s]][ancestors(axis, fine, s)]
    out <- ifelse(k > 0, out / pmax(k, 1), 0)
  }
  out
}

gather <- function(plan, array, steps, to) {
  for (a in seq_along(plan$axes)) {
    axis <- plan$axes[[a]]
    if (steps[a] == to[a]) next
    path <- path_of(axis, steps[a], to[a])
    array <- along(array, a + 1, function(lines)
      sum_groups(lines * path, ancestors(axis, steps[a], to[a]), axis$groups[to[a]]))
  }
  array
}

spread_to <- function(plan, array, steps, to) {
  for (a in seq_along(plan$axes)) {
    if (steps[a] == to[a]) next
    up <- ancestors(plan$axes[[a]], to[a], steps[a])
    array <- along(array, a + 1, function(lines) lines[up, , drop = FALSE])
  }
  array
}

# Totals minus the mean over the groups of one parent, axis by axis.
contrasts_of <- function(plan, array, steps) {
  for (a in seq_along(plan$axes)) {
    axis <- plan$axes[[a]]
    s <- steps[a]
    if (s == length(axis$groups)) next
    k <- axis$siblings[[s]]
    array <- along(array, a + 1, function(lines) {
      lines <- lines * (k > 0)
      mean <- sum_groups(lines, axis$up[[s]], axis$groups[s + 1])[axis$up[[s]], , drop = FALSE]
      (lines - mean / pmax(k, 1)) * (k > 0)
    })
  }
  array
}

# One number for every combination of groups of the other axes.
outer_over <- function(plan, steps, of) {
  out <- 1
  for (a in seq_along(plan$axes)) out <- as.vector(outer(out, of(plan$axes[[a]], steps[a])))
  out
}

# Standard deviations of the noise on contrasts, for every group of the tree and of the other axes.
deviations <- function(plan, found, steps, grid) {
  kept <- function(axis, step) step < length(axis$groups)
  share <- outer_over(plan, steps, function(axis, step) {
    if (!kept(axis, step)) return(1)
    k <- axis$siblings[[step]]
    ifelse(k > 0, 1 - 1 / pmax(k, 1), 0)
  })
  units <- grid * outer_over(plan, steps, function(axis, step)
    if (kept(axis, step)) axis$siblings[[step]] else 1)
  b <- found$precision
  squared <- outer(ifelse(b > 0, 1 / b, 0), share) +
    outer(as.numeric(b > 0), ifelse(share > 0, 1 / (12 * pmax(units, 1)^2), 0))
  array(sqrt(squared), dim(found$array))
}

# The adjoint of least squares on the tree: weights of what is measured at every level.
smoother_weights <- function(plan, interaction, by_level) {
  tree <- plan$tree
  root <- length(tree$groups)
  first <- interaction$finest + 1L
  held <- if (is.null(interaction$held)) NULL else interaction$held + 1L
  projected <- !is.null(held) && !interaction$constrained
  exact_top <- interaction$total_known || (interaction$constrained && !is.null(held))
  top <- if (interaction$constrained && !is.null(held)) held else root
  present <- lapply(tree$sizes, function(n) n > 0)

  precision <- lapply(tree$groups, function(n) rep(0, n))
  stated <- list()
  for (one in interaction$levels) {
    b <- unlist(one$precision)
    level <- one$level + 1L
    precision[[level]] <- if (length(b) == 1) rep(b, tree$groups[level]) else
      b[plan$regions[[level]] + 1]
    stated[[level]] <- one
  }

  below <- subtree <- share <- gain <- vector("list", root)
  subtree[[first]] <- ifelse(present[[first]], 1 / precision[[first]], 0)
  for (level in seq_len(top - first) + first) {
    sums <- sum_groups(matrix(subtree[[level - 1]]), tree$up[[level - 1]], tree$groups[level])
    below[[level]] <- drop(sums)
    product <- precision[[level]] * below[[level]]
    subtree[[level]] <- below[[level]] / (1 + product)
    gain[[level]] <- product / (1 + product)
    whole <- below[[level]][tree$up[[level - 1]]]
    share[[level - 1]] <- ifelse(whole > 0, subtree[[level - 1]] / whole, 0)
  }

  shape <- dim(by_level[[1]])[-1]
  nothing <- function(level) array(0, c(tree$groups[level], shape))
  up <- function(array, level) along(array, 1, function(lines)
    sum_groups(lines, tree$up[[level]], tree$groups[level + 1]))
  down <- function(array, level) along(array, 1, function(lines)
    lines[tree$up[[level - 1]], , drop = FALSE] * present[[level - 1]])

  last <- if (is.null(held)) root + 1L else held
  final <- lapply(seq_len(root), function(level) {
    given <- by_level[[as.character(level)]]
    if (is.null(given) || level >= last) nothing(level) else given
  })
  if (projected) {
    for (level in seq_len(held - first) + first - 1L) {
      given <- by_level[[as.character(level)]]
      if (is.null(given)) next
      above <- ancestors(tree, level, held)
      part <- ifelse(present[[level]], tree$sizes[[level]] / pmax(tree$sizes[[held]][above], 1), 0)
      moved <- given * part
      final[[held]] <- final[[held]] - along(moved, 1, function(lines)
        sum_groups(lines, above, tree$groups[held]))
    }
  }
  on_estimates <- sums <- lapply(seq_len(root), nothing)
  for (level in seq_len(top - first) + first - 1L) {
    on_estimates[[level]] <- on_estimates[[level]] + final[[level]]
    above <- up(final[[level]] * share[[level]], level)
    final[[level + 1]] <- final[[level + 1]] + above
    sums[[level + 1]] <- sums[[level + 1]] - above
  }
  if (!exact_top) on_estimates[[top]] <- on_estimates[[top]] + final[[top]]
  out <- list()
  take <- function(level, array) {
    if (level > length(stated) || is.null(stated[[level]])) return(out)
    c(out, list(list(array = array, precision = precision[[level]] * present[[level]],
                     stated = stated[[level]])))
  }
  for (level in rev(seq_len(top - first) + first)) {
    sums[[level]] <- sums[[level]] + (1 - gain[[level]]) * on_estimates[[level]]
    if (any(precision[[level]] > 0)) out <- take(level, gain[[level]] * on_estimates[[level]])
    on_estimates[[level - 1]] <- on_estimates[[level - 1]] + down(sums[[level]], level)
  }
  take(first, on_estimates[[first]])
}
