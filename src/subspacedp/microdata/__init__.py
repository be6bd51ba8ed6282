"""What is made of a release beside it: a biased table without negative values, and records of it.

Everything here is post-processing: a function of the published release alone.
"""

from subspacedp.microdata.second_table import SecondTable, verify_folder
from subspacedp.microdata.weights import CalibratedMargin, Weights, calibrate

__all__ = ["CalibratedMargin", "SecondTable", "Weights", "calibrate", "verify_folder"]
