"""Learners have the same bits on every machine: core_bits.c prints hashes that core_bits.txt lists.

After a change of the arithmetic, `python tests/test_core_bits.py` writes the list anew.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import core_library
from core_library import EXACT, NAMES, ROOT_FOLDER, SOURCES, TESTS, made_once, targets

LISTED = TESTS / "core_bits.txt"
WARNINGS = ["-Wall", "-Wextra", "-Wno-psabi"]
DOUBLE, MIXED, FLOAT = (np.float64,) * 2, (np.float32, np.float64), (np.float32,) * 2
PAIRS = [DOUBLE, MIXED, FLOAT]
PLAIN = ["-std=c99", "-pedantic", "-DORFIT_PLAIN"]


def find_zig():
    """The command of clang in the wheel ziglang, of this environment or of .cache/zig."""
    for folder in (ROOT_FOLDER / ".cache/zig", *map(Path, sys.path)):
        if (folder / "ziglang/__main__.py").exists():
            return [sys.executable, str(folder / "ziglang/__main__.py"), "cc"]
    pytest.skip("clang is tested if the wheel ziglang is installed, which `make test-all` does.")


def march(target):
    return [] if target == "plain" else [f"-march={target}"]


def build(name, source, compiler, *options, pair=DOUBLE):
    """The path of a program, which is compiled if there is none of that name."""
    types = [f"-DREAL={NAMES[pair[0]]}", f"-DSMALL={NAMES[pair[1]]}"]
    command = [*compiler, *EXACT, *WARNINGS, f"-I{SOURCES}", *types, *options, str(TESTS / source)]

    def compile(path):
        done = subprocess.run(
            [*command, "-o", str(path), "-lm"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    types_name = "-".join(NAMES[one] for one in pair)
    return made_once(f"{Path(source).stem}-{name}-{types_name}", compile)


def hashes_of(program, *runner):
    done = subprocess.run([*runner, str(program)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def listed(pair):
    digits = "-".join(str(np.dtype(one).itemsize) for one in pair)
    return [line for line in LISTED.read_text().splitlines() if line.startswith(digits)]


def check(program, pair, *runner):
    found, expected = hashes_of(program, *runner), listed(pair)
    different = [line for line, other in zip(found, expected, strict=True) if line != other]
    assert not different


@pytest.mark.parametrize("target", [targets()[0], targets()[-1]])
def test_two_targets(target):
    """The plain one in strict C99, and the one with the widest vectors."""
    options = PLAIN if target == "plain" else ["-std=gnu99", *march(target)]
    compiler = [core_library.find_compiler()]
    check(build(target, "core_bits.c", compiler, "-O1", *options), DOUBLE)


def test_a_controller():
    """Rows and small algebra of float."""
    compiler = [core_library.find_compiler()]
    check(build("plain", "core_bits.c", compiler, "-O1", *PLAIN, pair=FLOAT), FLOAT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "level"), [(DOUBLE, "-O1"), (DOUBLE, "-O2"), *((pair, "-O3") for pair in PAIRS)]
)
@pytest.mark.parametrize("target", targets())
def test_every_target(target, level, pair):
    options = PLAIN if target == "plain" else ["-std=gnu99", *march(target)]
    compiler = [core_library.find_compiler()]
    check(build(f"{target}{level}", "core_bits.c", compiler, level, *options, pair=pair), pair)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("features", ["", "-mavx2", "-mavx512f -mavx512dq", "-DORFIT_PLAIN"])
def test_clang(features, pair):
    needed = {feature[2:] for feature in features.split() if feature.startswith("-m")}
    if targets()[-1] != "x86-64-v4" and "avx512f" in needed:
        pytest.skip("This processor has no AVX-512.")
    program = build(
        f"clang{features}", "core_bits.c", find_zig(), "-O3", *features.split(), pair=pair
    )
    check(program, pair)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_arm(pair):
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("ARM is tested where qemu-aarch64 runs its programs (Debian: qemu-user).")
    target = "-target", "aarch64-linux-musl", "-static"
    check(build("arm", "core_bits.c", find_zig(), "-O3", *target, pair=pair), pair, emulator)


SANITIZERS = [
    "-g",
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-DORFIT_GAPS",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "target", "pair"),
    [
        ("core_bits.c", targets()[-1], DOUBLE),
        ("core_fuzz.c", targets()[-1], DOUBLE),
        ("core_fuzz.c", targets()[-1], MIXED),
        ("core_fuzz.c", "plain", FLOAT),
    ],
)
def test_sanitizers(source, target, pair):
    """Nothing outside of arrays is touched, and nothing is undefined."""
    options = ["-DORFIT_PLAIN"] if target == "plain" else march(target)
    compiler = [core_library.find_compiler()]
    program = build(f"sanitized-{target}", source, compiler, *SANITIZERS, *options, pair=pair)
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    arguments = ["2000", "1"] if source == "core_fuzz.c" else []
    command = [str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    lines = []
    for types in PAIRS:
        program = build("plain", "core_bits.c", ["cc"], "-O1", *PLAIN, pair=types)
        lines += hashes_of(program)
    LISTED.write_text("\n".join(lines) + "\n")
