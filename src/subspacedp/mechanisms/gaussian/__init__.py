"""Correlated Gaussian noise: the least error that any Gaussian mechanism can have."""
