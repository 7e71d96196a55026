"""NumPy's threads beside torch's."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
threadpoolctl = pytest.importorskip("threadpoolctl")

import orfit


def of_numpy():
    """How many threads each BLAS of NumPy and SciPy would take."""
    libraries = threadpoolctl.threadpool_info()
    return [one["num_threads"] for one in libraries if one["internal_api"] == "openblas"]


@pytest.fixture(autouse=True)
def two_threads():
    if not of_numpy():
        pytest.skip("NumPy's BLAS is not OpenBLAS")
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


def test_a_step_of_a_network_takes_one_thread_of_numpys():
    network, seen = torch.nn.Linear(3, 2), []
    before = of_numpy()

    def loss(outputs, y):
        seen.extend(of_numpy())
        return torch.nn.functional.cross_entropy(outputs, y, reduction="none")

    learner = orfit.PerLayer(network, loss=loss)
    learner.learn(np.eye(3), [0, 1, 0])
    assert set(seen) == {1}
    assert of_numpy() == before
    with pytest.raises(ValueError, match="datapoints"):
        learner.learn(np.eye(3), [0])
    assert of_numpy() == before
