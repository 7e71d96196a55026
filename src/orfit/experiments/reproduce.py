"""Run experiments by name, and leave their results in a folder."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from orfit.experiments import (
    classes,
    cnn,
    deep,
    digits,
    duffing,
    full,
    limited,
    memory,
    permuted,
    pretrained,
    report,
    rls,
    rotated20,
    split,
    tail,
)

EXPERIMENTS: dict[str, ModuleType] = {
    "limited": limited,
    "full": full,
    "memory": memory,
    "rls": rls,
    "tail": tail,
    "duffing": duffing,
    "digits": digits,
    "deep": deep,
    "classes": classes,
    "permuted": permuted,
    "rotated20": rotated20,
    "cnn": cnn,
    "split": split,
    "pretrained": pretrained,
}
# The least and the most that a number may be; other whole numbers count something, from 1 on.
LIMITS = {
    "seed": (0, 2**32),
    "data_seed": (0, 2**32),
    "interpolation": (0, 5),
    "pixel_std": (1e-6, 1e6),
    "lr": (1e-30, 1e30),
    "noise": (0.0, 1e30),
    "test_share": (0.01, 0.99),
}


def settings_of(name: str, quick: bool, changes: dict[str, str]) -> Any:
    """The settings of an experiment: its own, those of a quick run, and what the user changes."""
    experiment = EXPERIMENTS[name]
    known = {field.name: field.default for field in fields(experiment.Settings)}
    values: dict[str, Any] = dict(experiment.QUICK) if quick else {}
    for key, text in changes.items():
        if key not in known:
            having = ", ".join(f"{key}={value}" for key, value in known.items())
            raise ValueError(f"{name} has no setting {key}; it has {having}")
        values[key] = _value(key, text, type(known[key]))
    return experiment.Settings(**values)


def split_changes(names: Sequence[str], changes: dict[str, str]) -> dict[str, dict[str, str]]:
    """For each experiment the changes that concern it; each must concern one of them."""
    having = {name: {field.name for field in fields(EXPERIMENTS[name].Settings)} for name in names}
    lost = set(changes).difference(*having.values())
    if lost:
        settings_of(names[0], False, {lost.pop(): ""})  # raises, and says what there is
    return {name: {k: v for k, v in changes.items() if k in having[name]} for name in names}


def _value(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in {"true", "false"}:
            raise ValueError(f"{key} must be true or false; it is {text}")
        return text.lower() == "true"
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"{key} must be a number ({kind.__name__}); it is {text}") from None
    least, most = LIMITS.get(key, (1, 2**31) if kind is int else (-1e30, 1e30))
    if not least <= value <= most:
        raise ValueError(f"{key} must be at least {least} and at most {most}; it is {text}")
    return value


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
