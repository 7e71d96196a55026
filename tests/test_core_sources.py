"""What the C sources of the core may use."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from core_library import targets

LIBRARY_FUNCTIONS = {"sqrt", "fabs", "floor", "frexp", "ldexp", "memcpy", "memmove", "memset"}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("target", targets())
def test_sources_compile_without_warnings(core, target, dtype):
    warnings = ["-Werror", "-Wdouble-promotion", "-Wfloat-conversion", "-Wshadow"]
    core.compile(target, dtype, "-fsyntax-only", *warnings)


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm lists the functions that are called.")
def test_few_functions_of_the_library_are_called(core):
    """Others allocate, or round differently on other systems."""
    listed = subprocess.run(
        ["nm", "-D", "-u", core.library_path()], capture_output=True, text=True, check=True
    )
    names = re.findall(r"\bU (\w+)", listed.stdout)
    assert {*names} <= LIBRARY_FUNCTIONS
