"""Where a compiled loop is kept, and what is said where it has to be compiled.

numba's cache stops the program where its folder cannot be written or a file in it was cut short.
Here the loop is compiled then, and one line says so. The lines are logged, not warned of: a filter
that turns warnings into errors would end a learner in the midst of its stream. By default Python
shows them on stderr.
"""

import functools
import hashlib
import logging
from importlib.resources import files

from numba import get_num_threads
from numba.core.caching import FunctionCache, NullCache

logger = logging.getLogger("orfit")
ADVICE = "set NUMBA_CACHE_DIR to a folder that can be written"


def fingerprint() -> str:
    """Of all that is compiled, wherever it was installed, in a zip too.

    numba compiles a function anew when its file has changed, and does not look at other files; but
    it looks at what a function closes over.
    """
    package = files("orfit")
    sources = [file for file in files("orfit.kernels").iterdir() if file.name.endswith(".py")]
    sources += [package / "gram.py", package / "tail.py"]
    text = b"".join(file.read_bytes() for file in sorted(sources, key=lambda file: file.name))
    return hashlib.sha256(text).hexdigest()


@functools.cache  # of the loops that follow nobody need be told
def compiling(how_often: str) -> None:
    logger.warning(
        "orfit compiles a loop over rows with numba, and others when they are needed: each takes "
        "up to a minute of a processor's time, %s. orfit.warm_up() does so beforehand, for all.",
        how_often,
    )


@functools.cache
def not_kept(why: str) -> None:
    logger.warning("what orfit compiles is not kept for the next process (%s); %s", why, ADVICE)


class Kept(FunctionCache):
    """numba's cache of one function, which never stands in the way."""

    def load_overload(self, sig, target_context):
        get_num_threads()  # starts them: numba 0.60 to 0.62 crash in what is loaded before that
        try:
            found = super().load_overload(sig, target_context)
            # Of two processes that write at once, the index of one may name the file of the other.
            if found is not None and found.signature.args == tuple(sig):
                return found
        except Exception as error:  # whatever was raised by a file that is not what it should be
            logger.info("%s cannot be read: %r", self.cache_path, error)
        compiling("once on this machine")
        return None

    def save_overload(self, sig, data):
        try:
            super().save_overload(sig, data)
        except Exception:
            try:  # an index that cannot be read is written anew
                self.flush()
                super().save_overload(sig, data)
            except Exception as error:
                not_kept(f"{self.cache_path}: {error}")


class NotKept(NullCache):
    """Where no folder can be written."""

    def load_overload(self, sig, target_context):
        compiling("in every process")


def kept(dispatcher):
    """The compiled function, kept where that is possible."""
    try:
        dispatcher._cache = Kept(dispatcher.py_func)
    except (RuntimeError, OSError):  # numba finds no folder for its files
        dispatcher._cache = NotKept()
        not_kept("no folder for numba's cache")
    return dispatcher
