"""Experiments that are not in the paper: benchmarks/experiments/run.py."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orfit

for package in ("matplotlib", "rich", "sklearn", "torch"):
    pytest.importorskip(package, reason="benchmarks need the extra `bench`")

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "experiments" / "run.py"
NAMES = re.findall(r'"(\w+)"', re.search(r"NAMES = \((.*?)\n\)", SCRIPT.read_text(), re.S)[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_quick_run(name, tmp_path):
    command = [sys.executable, SCRIPT, name, "--quick", "--out", tmp_path]
    environment = os.environ | {"PYTHONPATH": str(Path(orfit.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    with (tmp_path / name / "curves.csv").open() as file:
        values = [float(row["value"]) for row in csv.DictReader(file)]
    assert values
    assert np.isfinite(values).all()
    assert (tmp_path / name / f"{name}.png").stat().st_size > 10_000
