"""NumPy's threads beside torch's.

Both keep threads, which after some work wait for more with a processor of their own. Where there
are few processors, the small eigenproblems of a step, which NumPy and SciPy would share among
threads, so wait for torch: on two cores a block of 50 datapoints took five times as long. Alone
they are done in a fraction of a millisecond.
"""

import threading
from typing import Any

from threadpoolctl import ThreadpoolController


class SmallAlone:
    """Within it NumPy and SciPy take one thread, in the whole process; torch takes its own.

    Where several threads are within, the first to leave gives all back: the others are slower for
    the rest of their call. (threadpoolctl heeds one thread at a time, and forgets it when it ends,
    so that the last to leave might not be heard.)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._numpys: Any = None  # the BLAS of NumPy and of SciPy
        self._found: Any = None  # what they had when nobody was within

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


small_alone = SmallAlone()
