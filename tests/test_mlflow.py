"""examples/mlflow_model.py: what MLflow serves is what was learned."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("sklearn", reason="the estimators need scikit-learn")
pytest.importorskip("mlflow", reason="the example needs mlflow-skinny")

EXAMPLE = Path(__file__).parents[1] / "examples" / "mlflow_model.py"


def test_a_logged_model_is_loaded_and_goes_on(tmp_path):
    made = subprocess.run(
        [sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "served as learned: True; 442 rows after it went on" in made.stdout
