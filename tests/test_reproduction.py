"""`orfit reproduce`: the paper's results on its experiments, and the command line."""

import csv
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rich", reason="reproduce needs the extra `experiments`")
from orfit import cli
from orfit.cli.reproduce import NAMES
from orfit.reproduce import full, limited, report, rls, rotated
from orfit.reproduce.run import EXPERIMENTS, parse_settings

METHODS = {"orfit", "orfit-random", "orfit-latest", "one-step-sgd", "greedy", "sgd"}


def advance():
    pass


@pytest.fixture(scope="module")
def limited_curves():
    return limited.run(limited.Settings(), advance)


def test_rotation_is_counter_clockwise_with_the_nearest_neighbour():
    setup = rotated.Setup()
    image = np.arange(784, dtype=np.uint8).reshape(1, 28, 28) % 251
    turned = rotated._rotate(image, np.array([90.0]), setup)
    pixels = turned * setup.pixel_std + setup.pixel_mean
    assert pixels.reshape(28, 28) * 255 == pytest.approx(np.rot90(image[0]).astype(float))


def test_data_are_those_of_the_paper():
    data = rotated.load_data(rotated.Setup())
    assert data.X.shape == (100, 784)
    assert data.X_test.shape == (1032, 784)
    assert (np.diff(data.y) >= 0).all()
    assert 0 <= data.y.min() < 0.2
    assert np.pi - 0.2 < data.y.max() <= np.pi
    assert data.X.min() == pytest.approx(-0.1307 / 0.3081)
    assert data.X.max() == pytest.approx((1 - 0.1307) / 0.3081)
    again = rotated.load_data(rotated.Setup(seed=5, runs=2))
    assert (again.X == data.X).all(), "the data are the same in every run"
    (_, one), (_, other) = rotated.draw_starts(rotated.Setup(runs=2))
    assert np.abs(one).max() <= 1 / 28
    assert (one != other).any()
    assert one.shape == (785,)


def test_fig_limited_a(limited_curves):
    """The final test error of ORFit is the lowest, and varies least over the runs."""
    final = {c.method: (c.mean[-1], c.std[-1]) for c in limited_curves.select("test_rmse")}
    mean, std = final.pop("orfit")
    assert all(mean < 0.7 * other for other, _ in final.values())
    assert all(std < 0.5 * other for name, (_, other) in final.items() if name != "greedy")


def test_fig_limited_b(limited_curves):
    """From step 16 on, the error of ORFit on the sample is the lowest by far."""
    errors = {c.method: c.mean[15:] for c in limited_curves.select("sample_error")}
    assert all(values[0] < 1e-9 for values in errors.values()), "every method fits it at step 16"
    ours = errors.pop("orfit")
    assert all(ours.mean() < 0.5 * other.mean() for other in errors.values())
    assert all(ours[-1] < 0.5 * other[-1] for other in errors.values())


def test_the_page_has_the_measured_numbers(limited_curves):
    page = (Path(__file__).parents[1] / "docs" / "reproduction.md").read_text()
    for quantity, digits in (("test_rmse", 1), ("sample_error", 0)):
        for curve in limited_curves.select(quantity):
            assert f"{report.LABELS[curve.method]} {curve.mean[-1]:.{digits}f}°" in page
    ours, *others = (curve.mean for curve in limited_curves.select("test_rmse"))
    worse = np.flatnonzero(ours >= np.min(others, axis=0))
    assert f"from step {worse[-1] + 2} on" in page


def test_fig_full():
    """ORFit fits all data in one pass, and SGD converges to the same parameters."""
    settings = full.Settings(runs=2, epochs=100)
    curves = full.run(settings, advance)
    assert curves["orfit", "train_rmse"].mean[-1] < 1e-9
    assert curves["orfit", "sample_error"].values[:, settings.sample - 1 :].max() < 1e-9
    assert curves["one-step-sgd", "sample_error"].mean[-1] > 90
    test_error = {m: curves[m, "test_rmse"].mean[-1] for m in ("orfit", "sgd", "one-step-sgd")}
    assert abs(test_error["sgd"] - test_error["orfit"]) < 3
    assert test_error["one-step-sgd"] > 2 * test_error["orfit"]
    starts = rotated.draw_starts(settings)
    for (_, w0), distance in zip(starts, curves.extras["distance"], strict=True):
        expected = full.compute_distance_left(settings, w0, settings.epochs)
        assert distance == pytest.approx(expected, rel=0.1)


def test_rls_ntk_rls_and_ekf_approach_orfit():
    """prop:compare_RLS, thm:implicit_bias_ntk: the distance is proportional to λ or R."""
    curves = rls.run(rls.Settings(points=12, runs=1, limits=6), advance)
    for method in ("rls", "ekf", "ntk-rls"):
        distance = curves[method, "distance"].mean
        assert (distance[2:] < 0.2 * distance[1:-1]).all()


@pytest.mark.parametrize("name", NAMES)
def test_quick_run_from_the_command_line(name, tmp_path, capsys):
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
        assert {row["method"] for row in rows} <= METHODS
        assert {row["quantity"] for row in rows} == {"test_rmse", "train_rmse", "sample_error"}


def test_the_command_line_names_every_experiment():
    assert list(NAMES) == list(EXPERIMENTS)


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    def run(folder, *more):
        arguments = "--quick", "--set", "points=16", "--out", str(tmp_path / folder)
        assert cli.main(["reproduce", *arguments, *more]) == 0
        return [(tmp_path / folder / name / "curves.csv").read_bytes() for name in NAMES]

    first, again, other = run("a"), run("b"), run("c", "--seed", "1")
    assert first == again
    assert all(one != another for one, another in zip(first, other, strict=True))
    svg = [(tmp_path / folder / "limited" / "limited.svg").read_bytes() for folder in ("a", "b")]
    assert svg[0] == svg[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "there is no experiment nothing; there are limited"),
        (["limited", "--set", "n=3"], "limited has no setting n; it has points=100"),
        (["limited", "--set", "m"], "--set takes NAME=VALUE"),
        (["limited", "--set", "m=many"], "m must be a number"),
        (["limited", "--set", "bias=2"], "bias must be true or false"),
        (["limited", "--set", "points=9999"], "points must be from 1 to 400"),
        (["limited", "--set", "interpolation=9"], "interpolation must be at least 0 and at most 5"),
        (["limited", "--set", "pixel_std=0"], "pixel_std must be at least"),
        (["limited", "--set", "pixel_mean=nan"], "pixel_mean must be at least"),
        (["limited", "--runs", "2", "--set", "runs=3"], "runs is given twice"),
        (["--set", "nothing=3"], "limited has no setting nothing"),
        (["limited", "--set", "sample=200"], "sample must be one of the 100 training images"),
        (["limited", "--runs", "0"], "runs must be at least 1"),
    ],
)
def test_invalid_arguments_are_refused_in_a_sentence(arguments, sentence, capsys, tmp_path):
    assert cli.main(["reproduce", *arguments, "--out", str(tmp_path)]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_missing_extra_is_named(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["reproduce", "limited"]) == 2
    assert "pip install '.[cli]'" in capsys.readouterr().err


def test_a_setting_applies_to_the_experiments_that_have_it(tmp_path):
    names = ["limited", "rls"]
    sizes = ["--set", "m=3", "--set", "hidden=2", "--set", "points=16", "--set", "limits=2"]
    assert cli.main(["reproduce", *names, "--quick", *sizes, "--out", str(tmp_path)]) == 0


def test_settings_are_changed_by_name():
    changes = {"m": "3", "clockwise": "true", "pixel_std": "0.5"}
    settings = parse_settings("limited", limited, True, changes)
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
