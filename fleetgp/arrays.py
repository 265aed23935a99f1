"""Array types. Shapes stand in docstrings and comments as [n, d]; Q channels, F features, n frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
