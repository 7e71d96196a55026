"""NumPy's threads beside torch's.

Both keep threads, which after some work wait for more with a processor of their own. Where there
are few processors, the small eigenproblems of a step, which NumPy and SciPy would share among
threads, so wait for torch: on two cores a block of 50 datapoints took five times as long. Alone
they are done in a fraction of a millisecond.
"""

import functools
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController


def small_alone() -> AbstractContextManager[Any]:
    """Within it NumPy and SciPy take one thread, in the whole process; torch takes its own."""
    limit: AbstractContextManager[Any] = _numpys().limit(limits=1)
    return limit


@functools.cache
def _numpys() -> Any:
    """The BLAS of NumPy and of SciPy."""
    return ThreadpoolController().select(internal_api="openblas")
