"""Build backend: setuptools, with the compiler of the ziglang wheel where there is none."""

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  # hooks that need no compiler
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

Settings = dict[str, Any] | None


def find_compiler() -> str | None:
    """Find the command of a C compiler: CC, the one that built Python, or a usual name."""
    commands = [os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"]
    return next((c for c in commands if c and shutil.which(shlex.split(c)[0])), None)


def needs_zig() -> bool:
    """Whether there is no compiler. On Windows, setuptools finds the compiler."""
    return os.name != "nt" and find_compiler() is None


def check_headers() -> None:
    """Stop if Python's headers are missing."""
    folders = [sysconfig.get_path("include"), sysconfig.get_config_var("INCLUDEPY")]
    if not any(Path(folder, "Python.h").exists() for folder in folders if folder):
        raise SystemExit(
            f"orfit is compiled at installation and needs Python.h, which is not in {folders[0]}: "
            "install Python's headers (package python3-dev on Debian, python3-devel on Fedora)."
        )


@contextmanager
def build_folder() -> Iterator[str]:
    """Yield a temporary folder for files of the build, and set CC."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = find_compiler()
        if needs_zig():
            zig = f"{shlex.quote(sys.executable)} -m ziglang"
            # Without -mcpu, zig compiles for this machine's processor only.
            compiler = f"{zig} cc -mcpu=baseline"
            os.environ.update(LDSHARED=f"{compiler} -shared", AR=f"{zig} ar")
            os.environ.update(ZIG_GLOBAL_CACHE_DIR=folder, ZIG_LOCAL_CACHE_DIR=folder)
        if compiler:
            os.environ["CC"] = compiler
        yield folder


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    check_headers()
    requirements = build_meta.get_requires_for_build_wheel(config_settings)
    return requirements + ["ziglang"] * needs_zig()


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return get_requires_for_build_wheel(config_settings)


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    with build_folder() as folder:
        # A build folder in the source tree would add removed modules to later wheels.
        build = {"--global-option": ["--quiet", "build", "--build-base", folder]}
        settings = (config_settings or {}) | build
        return build_meta.build_wheel(wheel_directory, settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    with build_folder():
        return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
