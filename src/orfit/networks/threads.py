"""NumPy's threads beside torch's.

Both keep threads, which occupy their processors for a while after some work. If there are few
processors, the small eigenproblems of a step, which NumPy and SciPy would distribute to threads,
wait for torch: on two cores a block of 50 datapoints took five times as long. On one thread they
take a fraction of a millisecond.
"""

import threading
from typing import Any

from threadpoolctl import ThreadpoolController


class OneThread:
    """A context in which NumPy and SciPy use one thread, in the whole process; torch uses its own.

    If several threads are inside, the first exit restores the limits: the others are slower for
    the rest of their call. (threadpoolctl stores limits per thread, and drops them when the thread
    ends, so that the last exit might have no effect.)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._numpys: Any = None  # the BLAS of NumPy and of SciPy
        self._found: Any = None  # the limits outside of all contexts

    def __enter__(self) -> None:
        with self._lock:
            if self._numpys is None:
                self._numpys = ThreadpoolController().select(internal_api="openblas")
            limit = self._numpys.limit(limits=1)
            if not self._inside:
                self._found = limit
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            self._found.restore_original_limits()


one_thread = OneThread()
