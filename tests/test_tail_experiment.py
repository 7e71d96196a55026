"""`orfit reproduce tail`: what its tables say of the tail and of noise="auto"."""

import numpy as np
import pytest

import orfit

pytest.importorskip("rich", reason="experiments need the extra `experiments`")
from orfit.experiments import report, tail

SETTINGS = tail.Settings(**tail.QUICK)


def run(settings=SETTINGS):
    ticked = []
    curves = tail.run(settings, lambda: ticked.append(1))
    assert len(ticked) == tail.ticks(settings)
    return curves


@pytest.fixture(scope="module")
def curves():
    return run()


def test_errors_are_numbers_and_are_told(curves):
    assert all(np.isfinite(curve.values).all() and (curve.values > 0).all() for curve in curves)
    for name in tail.STREAMS:
        methods = {curve.method for curve in curves.of(f"error {name} by R")}
        assert methods == set(tail.NAMES)
    assert len(tail.tables(curves, SETTINGS)) == 7


def test_the_figure_can_be_drawn(curves, tmp_path):
    paths = report.save(tail.figure(curves, SETTINGS), tmp_path, "tail")
    assert all(path.stat().st_size > 10_000 for path in paths)


def test_on_white_rows_the_tail_comes_to_ridge_and_without_it_nothing_does(curves):
    ends = {m: tail.over_ridge(curves, m, "error white by rows")[-1] for m in tail.NAMES}
    assert ends["tail"] <= 1.3
    assert ends["auto"] <= 1.3
    assert ends["no-tail"] >= 2


def test_on_white_rows_auto_is_near_the_best_noise_of_the_grid(curves):
    best = curves["tail", "error white by R"].mean.min()
    assert curves["auto", "error white by R"].mean[0] <= 1.05 * best


def test_the_yardstick_is_orfit_that_keeps_everything():
    stream = tail.made("1/i", SETTINGS, 0)
    for R, w in zip((0.1, 10.0), tail.ridge(stream, [0.1, 10.0]).T, strict=True):
        exact = orfit.ORFit(orfit.Linear(SETTINGS.p), noise=R)
        exact.learn_batch(stream.X, stream.y)
        np.testing.assert_allclose(exact.w, w, rtol=0, atol=1e-9)


def test_an_ordered_stream_has_the_rows_of_its_shuffled_twin():
    for name in ("diabetes", "digits"):
        one, other = (tail.made(name + end, SETTINGS, 0) for end in ("", "-ordered"))
        assert (one.X_test == other.X_test).all()
        assert (one.y != other.y).any()
        assert (np.sort(one.y) == np.sort(other.y)).all()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(curves, tmp_path):
    other = run(tail.Settings(**tail.QUICK | {"seed": 1}))
    for name, made in (("one", curves), ("again", run()), ("other", other)):
        made.write(tmp_path / name)
    one, again, other = ((tmp_path / name).read_bytes() for name in ("one", "again", "other"))
    assert one == again
    assert one != other
