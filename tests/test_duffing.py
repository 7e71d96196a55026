"""`orfit reproduce duffing`: the plant is what it says, and ORFit does what RLS does."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

pytest.importorskip("rich", reason="experiments need the extra `experiments`")
from orfit.experiments import duffing

SMALL = {"rows": 600, "tests": 300, "start": 150, "features": 60, "largest_m": 100}


def nothing():
    pass


@pytest.fixture(scope="module")
def small():
    """With p = 66, so that m = 100 keeps everything."""
    return duffing.run(duffing.Settings(**SMALL), nothing)


def test_the_simulation_against_scipy(rng):
    u = duffing.force(rng, 60, 10.0)

    def ahead(x, push):
        def slope(_, s):
            pull = duffing.SPRING * s[0] + duffing.CUBIC * s[0] ** 3
            return [s[1], (push - duffing.DAMPING * s[1] - pull) / duffing.MASS]

        return solve_ivp(slope, (0, duffing.SAMPLE), x, rtol=1e-10, atol=1e-12).y[:, -1]

    places, state = [], np.zeros(2)
    for push in u:
        places.append(state[0])
        state = ahead(state, push)
    np.testing.assert_allclose(duffing.simulate(u), places, rtol=0, atol=1e-4 * np.ptp(places))


def test_the_force_has_no_high_frequencies_and_grows(rng):
    u = duffing.force(rng, 2000, 10.0)
    steady = u / np.linspace(duffing.WEAKEST, 1.0, 2000)
    power = np.abs(np.fft.rfft(steady)) ** 2
    assert power[np.fft.rfftfreq(2000, duffing.SAMPLE) > duffing.BAND].max() < 1e-20 * power.max()
    assert u[-500:].std() > 3 * u[:500].std()


def test_lags_come_before_what_they_predict():
    u, y = np.arange(10.0), 100 + np.arange(10.0)
    Z, ahead = duffing.lagged(u, y, 3)
    assert Z[0].tolist() == [102, 101, 100, 2, 1, 0]
    assert ahead[0] == 103
    assert len(Z) == len(ahead) == 7


@pytest.mark.parametrize("quantity", ["one_step", "free_run"])
def test_with_room_for_all_orfit_is_rls_is_ridge(small, quantity):
    rls = small["rls", quantity].mean[0]
    assert small["orfit", quantity].at(100)[0] == pytest.approx(rls, rel=1e-4)
    assert small["ridge", quantity].mean[0] == pytest.approx(rls, rel=1e-4)
    assert small["arx", quantity].mean[0] > 1.5 * rls, "random features are of use"


def test_a_larger_memory_drops_less_and_errs_less(small):
    dropped, errors = (small["orfit", q].mean for q in ("dropped", "one_step"))
    assert (np.diff(dropped) < 0).all()
    assert (np.diff(errors) < 0).all()
    assert dropped[-1] == 0


def test_what_diverges_is_infinite():
    given = duffing.problem(duffing.Settings(**SMALL))
    free = duffing.free_run(given, np.array([given.w0, 3 * given.w0]))
    assert np.isfinite(free[0]).all()
    assert np.isinf(free[1, -1])


@pytest.mark.slow
def test_the_same_seed_gives_the_same_file(small, tmp_path):
    again = duffing.run(duffing.Settings(**SMALL), nothing)
    for name, curves in (("one", small), ("other", again)):
        curves.write(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_tables_and_figure(small, tmp_path):
    from orfit.experiments import report

    settings = duffing.Settings(**SMALL)
    errors, learners = duffing.tables(small, settings)
    assert errors.row_count == 2 * 3 + 4
    assert learners.row_count == 2 * 3 + 1
    for path in report.save(duffing.figure(small, settings), tmp_path, "duffing"):
        assert path.stat().st_size > 10_000


@pytest.mark.slow
def test_the_quick_run_counts_its_ticks():
    settings, count = duffing.Settings(**duffing.QUICK), []
    curves = duffing.run(settings, lambda: count.append(1))
    assert len(count) == duffing.ticks(settings)
    assert 90 < curves["orfit", "coverage"].at(30)[0] < 99
