"""`orfit reproduce`: what the paper says of its experiments holds, and what a user gets."""

import csv
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rich", reason="experiments need the extra `experiments`")
from orfit import cli
from orfit.cli.reproduce import NETWORKS
from orfit.experiments import full, limited, memory, report, rls, rotated
from orfit.experiments.reproduce import EXPERIMENTS, settings_of

PAPERS = {"orfit", "orfit-random", "orfit-latest", "one-step-sgd", "greedy", "sgd"}


def nothing():
    pass


@pytest.fixture(scope="module")
def little_memory():
    return limited.run(limited.Settings(), nothing)


def test_turned_counter_clockwise_by_the_nearest_neighbour():
    setup = rotated.Setup()
    image = np.arange(784, dtype=np.uint8).reshape(1, 28, 28) % 251
    turned = rotated._turned(image, np.array([90.0]), setup)
    pixels = turned * setup.pixel_std + setup.pixel_mean
    assert pixels.reshape(28, 28) * 255 == pytest.approx(np.rot90(image[0]).astype(float))


def test_the_data_are_as_the_paper_says():
    data = rotated.rotated_twos(rotated.Setup())
    assert data.X.shape == (100, 784)
    assert data.X_test.shape == (1032, 784)
    assert (np.diff(data.y) >= 0).all()
    assert 0 <= data.y.min() < 0.2
    assert np.pi - 0.2 < data.y.max() <= np.pi
    assert data.X.min() == pytest.approx(-0.1307 / 0.3081)
    assert data.X.max() == pytest.approx((1 - 0.1307) / 0.3081)
    again = rotated.rotated_twos(rotated.Setup(seed=5, runs=2))
    assert (again.X == data.X).all(), "the data are fixed over the runs"
    (_, one), (_, other) = rotated.starts(rotated.Setup(runs=2))
    assert np.abs(one).max() <= 1 / 28
    assert (one != other).any()
    assert one.shape == (785,)


def test_with_little_memory_orfit_has_the_lowest_test_error(little_memory):
    """Fig. limited (a): in the end it is the lowest, and varies least over the runs."""
    final = {c.method: (c.mean[-1], c.std[-1]) for c in little_memory.of("test_rmse")}
    ours, spread = final.pop("orfit")
    assert all(ours < 0.7 * theirs for theirs, _ in final.values())
    assert all(spread < 0.5 * theirs for name, (_, theirs) in final.items() if name != "greedy")


def test_with_little_memory_orfit_keeps_the_sample(little_memory):
    """Fig. limited (b): from the 16th step on, its error stays the lowest by far."""
    after = {c.method: c.mean[15:] for c in little_memory.of("sample_error")}
    assert all(errors[0] < 1e-9 for errors in after.values()), "each fits it when it comes"
    ours = after.pop("orfit")
    assert all(ours.mean() < 0.5 * theirs.mean() for theirs in after.values())
    assert all(ours[-1] < 0.5 * theirs[-1] for theirs in after.values())


def test_the_page_says_what_was_measured(little_memory):
    page = (Path(__file__).parents[1] / "docs" / "reproduction.md").read_text()
    for curve in little_memory.of("test_rmse"):
        name = report.LABELS[curve.method]
        said = (
            f"{curve.mean[-1]:.1f}°" if curve.method == "orfit" else f"{name} {curve.mean[-1]:.1f}°"
        )
        assert said in page
    for curve in little_memory.of("sample_error"):
        name = "in the end" if curve.method == "orfit" else report.LABELS[curve.method]
        assert f"{name} {curve.mean[-1]:.0f}°" in page
    ours, *others = (curve.mean for curve in little_memory.of("test_rmse"))
    worse = np.flatnonzero(ours >= np.min(others, axis=0))
    assert f"from step {worse[-1] + 2} on" in page


def test_without_a_limit_nothing_is_forgotten_and_sgd_is_on_its_way():
    """Fig. full: ORFit learns all in one pass and ends where SGD is heading."""
    settings = full.Settings(runs=2, epochs=100)
    curves = full.run(settings, nothing)
    assert curves["orfit", "train_rmse"].mean[-1] < 1e-9
    assert curves["orfit", "sample_error"].values[:, settings.sample - 1 :].max() < 1e-9
    assert curves["one-step-sgd", "sample_error"].mean[-1] > 90
    test_error = {m: curves[m, "test_rmse"].mean[-1] for m in ("orfit", "sgd", "one-step-sgd")}
    assert abs(test_error["sgd"] - test_error["orfit"]) < 3
    assert test_error["one-step-sgd"] > 2 * test_error["orfit"]
    # Along each singular vector gradient descent has a known part of the way to ORFit's w left.
    data = rotated.rotated_twos(settings)
    Phi = rotated.model_of(settings).phi(data.X, np.float64)
    U, sigma, _ = np.linalg.svd(Phi, full_matrices=False)
    for (_, w0), distance in zip(rotated.starts(settings), curves.facts["distance"], strict=True):
        way = (U.T @ (data.y - Phi @ w0)) / sigma
        left = (1 - 2 * settings.lr * sigma**2) ** settings.epochs * way
        assert distance == pytest.approx(np.linalg.norm(left) / np.linalg.norm(way), rel=0.1)


def test_no_memory_is_better_than_the_minimax_bound():
    curves = memory.run(
        memory.Settings(points=40, tests=50, runs=2, largest_m=40, every=5), nothing
    )
    bound = curves["bound", "worst_change"].values[0]
    for curve in curves.of("worst_change"):
        assert (curve.values >= bound - 1e-9 * bound[0]).all(), curve.method
    assert curves["orfit-pca", "worst_change"].mean == pytest.approx(bound, abs=1e-9 * bound[0])
    ours = curves["orfit", "worst_change"].mean
    assert (ours <= 1.5 * bound + 1e-9 * bound[0]).all(), "incremental PCA comes close"
    assert curves["orfit", "train_rmse"].mean[-1] < 1e-9


def test_the_relatives_meet_in_the_limit():
    curves = rls.run(rls.Settings(points=12, runs=1, limits=6, largest_p=200), nothing)
    for method in ("rls", "ekf", "ntk-rls"):
        distance = curves[method, "distance"].mean
        assert (distance[2:] < 0.2 * distance[1:-1]).all(), "ten times smaller, ten times nearer"
    assert list(curves["orfit", "numbers"].mean) == [26 * 100, 26 * 200]
    assert list(curves["rls", "numbers"].mean) == [10_000, 40_000]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("limited", "rls") else pytest.mark.slow)
        for name in EXPERIMENTS
    ],
)
def test_a_quick_run_from_the_command_line(name, tmp_path, capsys):
    if name in NETWORKS:
        pytest.importorskip("torch")
    assert cli.main(["reproduce", name, "--quick", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    folder = tmp_path / name
    assert str(folder / "curves.csv") in out
    assert "…" not in out, "a table is cut off"
    assert (folder / f"{name}.png").stat().st_size > 10_000
    assert (folder / f"{name}.svg").read_text().startswith("<?xml")
    with (folder / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["method", "run", "step", "quantity", "value"]
    assert all(np.isfinite(float(row["value"])) for row in rows)
    if name in ("limited", "full"):
        assert {row["method"] for row in rows} <= PAPERS
        assert {row["quantity"] for row in rows} == {"test_rmse", "train_rmse", "sample_error"}


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(tmp_path):
    def curves(folder, *more):
        settings = "--quick", "--set", "points=16", "--out", str(tmp_path / folder)
        assert cli.main(["reproduce", "limited", "full", "rls", *settings, *more]) == 0
        return [
            (tmp_path / folder / n / "curves.csv").read_bytes() for n in ("limited", "full", "rls")
        ]

    first, again, other = curves("a"), curves("b"), curves("c", "--seed", "1")
    assert first == again
    assert all(one != another for one, another in zip(first, other, strict=True))
    svg = [(tmp_path / f / "limited" / "limited.svg").read_bytes() for f in ("a", "b")]
    assert svg[0] == svg[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "there is no experiment nothing; there are limited"),
        (["limited", "--set", "n=3"], "limited has no setting n; it has points=100"),
        (["limited", "--set", "m"], "--set takes NAME=VALUE"),
        (["limited", "--set", "m=many"], "m must be a number"),
        (["limited", "--set", "bias=2"], "bias must be true or false"),
        (["limited", "--set", "points=9999"], "points must be at most 400"),
        (["limited", "--set", "interpolation=9"], "interpolation must be at least 0 and at most 5"),
        (["limited", "--set", "pixel_std=0"], "pixel_std must be at least"),
        (["limited", "--set", "pixel_mean=nan"], "pixel_mean must be at least"),
        (["limited", "--runs", "2", "--set", "runs=3"], "runs is given twice"),
        (["--set", "nothing=3"], "limited has no setting nothing"),
        (["limited", "--set", "sample=200"], "sample must be one of the 100 training images"),
        (["limited", "--runs", "0"], "runs must be at least 1"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(arguments, sentence, capsys, tmp_path):
    assert cli.main(["reproduce", *arguments, "--out", str(tmp_path)]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["reproduce", "limited"]) == 2
    assert "pip install '.[cli]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_setting_goes_to_those_that_have_it(tmp_path, capsys):
    names = ["limited", "rls"]
    sizes = ["--set", "m=3", "--set", "hidden=2", "--set", "points=16", "--set", "limits=2"]
    assert cli.main(["reproduce", *names, "--quick", *sizes, "--out", str(tmp_path)]) == 0


def test_settings_are_named_and_changed_by_name():
    settings = settings_of("limited", True, {"m": "3", "clockwise": "true", "pixel_std": "0.5"})
    assert settings.m == 3
    assert settings.clockwise is True
    assert settings.pixel_std == 0.5
    assert settings.points == limited.QUICK["points"]


def test_python_minus_m(capsys, monkeypatch):
    import runpy

    monkeypatch.setattr("sys.argv", ["orfit", "--version"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("orfit", run_name="__main__")
    assert stopped.value.code == 0
    assert "orfit 0" in capsys.readouterr().out
