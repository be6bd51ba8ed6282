"""The null space of any invariant matrix: components, Gram matrices, exact ranks."""
