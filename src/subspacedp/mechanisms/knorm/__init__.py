"""Pure ε with noise in the shape of what one person can change: norm balls, laws, the mechanism."""
