"""What is made of a release beside it: a biased table without negative values, and records of it.

Everything here is post-processing: a function of the published release alone.
"""

from subspacedp.microdata.records import CalibratedMargin, Weights, calibrate
from subspacedp.microdata.second_table import SecondTable, verify_folder

__all__ = ["CalibratedMargin", "SecondTable", "Weights", "calibrate", "verify_folder"]
