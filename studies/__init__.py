"""Studies on public and simulated data, beside the package: `python -m studies`."""
