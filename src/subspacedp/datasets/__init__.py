"""Public data that ship with the package, each with its provenance."""

from subspacedp.datasets.census import census2010

__all__ = ["census2010"]
