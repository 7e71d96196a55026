"""Run experiments by name and write their results to a folder.

An experiment is a module with

    TITLE                           a line above its tables
    Settings, QUICK                 a dataclass, and the settings of a quick run
    count_steps(settings)           length of the progress bar
    run(settings, advance)          its results, as Curves
    make_tables(curves, settings)   rich tables
    draw_figure(curves, settings)   a matplotlib figure
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from orfit.reproduce import full, limited, report, rls

EXPERIMENTS: dict[str, ModuleType] = {"limited": limited, "full": full, "rls": rls}
# Smallest and largest value of a setting. Other integers are counts, which start at 1.
LIMITS = {
    "seed": (0, 2**32),
    "data_seed": (0, 2**32),
    "interpolation": (0, 5),
    "pixel_std": (1e-6, 1e6),
    "lr": (1e-30, 1e30),
    "noise": (0.0, 1e30),
}


def run_experiments(
    experiments: Mapping[str, ModuleType],
    out: Path,
    quick: bool,
    changes: dict[str, str],
    show: Callable[[Any], None],
) -> list[Path]:
    """Run the experiments and return the paths of the files written.

    All settings are checked before the first experiment runs.

    Args:
        experiments: name → module.
        out: the folder for the results; each experiment writes to out/name.
        quick: small sizes, for a run of seconds.
        changes: setting → value as text. Each goes to the experiments that have the setting.
        show: called with each title and table.
    """
    known = {name: _setting_names(experiment) for name, experiment in experiments.items()}
    unknown = set(changes).difference(*known.values())
    if unknown:
        name, experiment = next(iter(experiments.items()))
        parse_settings(name, experiment, quick, {unknown.pop(): ""})  # raises
    settings = {}
    for name, experiment in experiments.items():
        own = {key: text for key, text in changes.items() if key in known[name]}
        settings[name] = parse_settings(name, experiment, quick, own)
    paths: list[Path] = []
    for name, experiment in experiments.items():
        paths += _run_one(name, experiment, out / name, settings[name], show)
    return paths


def parse_settings(
    name: str, experiment: ModuleType, quick: bool, changes: Mapping[str, str]
) -> Any:
    """Return the settings of an experiment: defaults, then those of a quick run, then `changes`."""
    defaults = {field.name: field.default for field in fields(experiment.Settings)}
    values: dict[str, Any] = dict(experiment.QUICK) if quick else {}
    for key, text in changes.items():
        if key not in defaults:
            listed = ", ".join(f"{key}={value}" for key, value in defaults.items())
            raise ValueError(f"{name} has no setting {key}; it has {listed}")
        values[key] = _parse_value(key, text, type(defaults[key]))
    return experiment.Settings(**values)


def _setting_names(experiment: ModuleType) -> set[str]:
    return {field.name for field in fields(experiment.Settings)}


def _parse_value(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in {"true", "false"}:
            raise ValueError(f"{key} must be true or false; it is {text}")
        return text.lower() == "true"
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"{key} must be a number ({kind.__name__}); it is {text}") from None
    low, high = LIMITS.get(key, (1, 2**31) if kind is int else (-1e30, 1e30))
    if not low <= value <= high:
        raise ValueError(f"{key} must be at least {low} and at most {high}; it is {text}")
    return value


def _run_one(
    name: str, experiment: ModuleType, folder: Path, settings: Any, show: Callable[[Any], None]
) -> list[Path]:
    with report.show_progress(name, experiment.count_steps(settings)) as advance:
        curves = experiment.run(settings, advance)
    folder.mkdir(parents=True, exist_ok=True)
    curves.write(folder / "curves.csv")
    show(f"\n{experiment.TITLE}")
    for table in experiment.make_tables(curves, settings):
        show(table)
    figure = experiment.draw_figure(curves, settings)
    return [folder / "curves.csv", *report.save_figure(figure, folder, name)]
