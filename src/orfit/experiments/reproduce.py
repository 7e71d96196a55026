"""Run experiments by name, and leave their results in a folder."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from orfit import door
from orfit.experiments import digits, full, limited, memory, report, rls

EXPERIMENTS: dict[str, ModuleType] = {
    "limited": limited,
    "full": full,
    "memory": memory,
    "rls": rls,
    "digits": digits,
}
FROM_ZERO = {"seed", "data_seed", "interpolation"}  # every other whole number counts something


def settings_of(name: str, quick: bool, changes: dict[str, str]) -> Any:
    """The settings of an experiment: its own, those of a quick run, and what the user changes."""
    experiment = EXPERIMENTS[name]
    known = {field.name: field for field in fields(experiment.Settings)}
    values: dict[str, Any] = dict(experiment.QUICK) if quick else {}
    for key, text in changes.items():
        if key not in known:
            raise ValueError(f"{name} has no setting {key}; it has {', '.join(known)}")
        values[key] = _value(key, text, type(known[key].default))
        if type(values[key]) is int:
            door.count(key, values[key], least=0 if key in FROM_ZERO else 1)
    return experiment.Settings(**values)


def _value(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in {"true", "false"}:
            raise ValueError(f"{key} must be true or false; it is {text}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{key} must be a number ({kind.__name__}); it is {text}") from None


def reproduce(name: str, out: Path, settings: Any, show: Any) -> Sequence[Path]:
    """Run one experiment; `show` prints its tables. The files that were written."""
    experiment = EXPERIMENTS[name]
    folder = out / name
    with report.progress(name, experiment.ticks(settings)) as tick:
        curves = experiment.run(settings, tick)
    folder.mkdir(parents=True, exist_ok=True)
    curves.write(folder / "curves.csv")
    show(f"\n{experiment.TITLE}")
    for table in experiment.tables(curves, settings):
        show(table)
    return [folder / "curves.csv", *report.save(experiment.figure(curves, settings), folder, name)]
