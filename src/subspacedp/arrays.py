"""Names for arrays by what they hold."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "AnyArray",
    "ArrayLike",
    "BoolArray",
    "FloatArray",
    "Int64Array",
    "ObjectArray",
    "WordArray",
]

FloatArray = NDArray[np.float64]
Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
ObjectArray = NDArray[np.object_]  # Python's integers and fractions
WordArray = NDArray[np.uint64]  # of 64 bits, mostly random
AnyArray = NDArray[Any]
