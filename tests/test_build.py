"""The build of the C core: standard C on the plain path, one symbol, and its requirements."""

import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "src" / "orfit" / "core"
# What a compiler without GNU extensions lacks. System headers may use it: they come first.
STANDARD = """
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define __attribute__(x) not_standard
#define __typeof__(x) not_standard
#define __builtin_convertvector(x, y) not_standard
"""
STRICT = ["-Wall", "-Wextra", "-Werror"]


def compile_c(tmp_path, name, *options):
    """Compile a file of the core into an object file."""
    if shutil.which("cc") is None:
        pytest.skip("this machine has no C compiler")
    command = ["cc", *options, "-c", CORE / name, "-o", tmp_path / f"{name}.o"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return tmp_path / f"{name}.o"


@pytest.fixture
def backend():
    """The module tools/build_backend.py."""
    pytest.importorskip("setuptools")
    spec = importlib.util.spec_from_file_location("backend", ROOT / "tools" / "build_backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("numbers", ["double double", "float double", "float float"])
def test_plain_core_is_standard_c(tmp_path, numbers):
    real, small = numbers.split()
    (tmp_path / "standard.h").write_text(STANDARD)
    options = ["-std=c99", "-pedantic", "-O2", *STRICT, "-include", tmp_path / "standard.h"]
    types = [f"-DREAL={real}", f"-DSMALL={small}"]
    compile_c(tmp_path, "core.c", *options, *types, "-DORFIT_PLAIN", "-DTABLE=orfit_plain")


def test_plain_dispatch_is_standard_c(tmp_path):
    options = ["-std=c99", "-pedantic", *STRICT, "-DORFIT_PLAIN", "-DTARGETS=TARGET(plain)"]
    compile_c(tmp_path, "dispatch.c", *options)


def test_object_file_exports_one_symbol(tmp_path):
    if shutil.which("nm") is None:
        pytest.skip("this machine has no nm")
    built = compile_c(tmp_path, "core.c", "-std=gnu99", "-Wno-psabi", "-DTABLE=orfit_f64_base")
    nm = ["nm", "--extern-only", "--defined-only", "--portability", built]
    symbols = subprocess.run(nm, capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in symbols.splitlines()] == ["orfit_f64_base"]


def test_build_requires_ziglang_without_a_compiler(backend, monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert backend.needs_zig()
    (tmp_path / "clang").touch(mode=0o755)
    assert not backend.needs_zig()
    assert backend.find_compiler() == "clang"


def test_missing_python_headers_stop_the_build(backend, monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match="python3-dev on Debian, python3-devel on Fedora"):
        backend.check_headers()
    (tmp_path / "Python.h").touch()
    backend.check_headers()
