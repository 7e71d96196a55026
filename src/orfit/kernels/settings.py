"""How everything is compiled."""

from typing import Any

import numpy as np
from numba import njit

# Sums may be reordered (that is what vectorising them means); NaN and infinity are respected.
SETTINGS: Any = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}
# What only compiled code calls: no way in from Python or C, which would be compiled for each.
INNER: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
compiled = njit(**SETTINGS, **INNER)

# Where numbers are counted from: a function that is called with a literal 0 is compiled for it.
START = np.int64(0)
