"""Pure ε with noise in the shape of what one person can change: bodies, laws, the mechanism."""
