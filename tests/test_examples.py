"""Every public name has an example in its docstring, where help() shows it, and each one runs."""

import doctest
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import orfit
import orfit.distributed

MODULES = [orfit, orfit.distributed, orfit.memory, orfit.measures, orfit.datasets]
if find_spec("sklearn"):
    import orfit.sklearn

    MODULES.append(orfit.sklearn)


def public(module):
    """The names that a module offers, with the module's own."""
    names = getattr(module, "__all__", None) or [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__
    ]
    return [module.__name__, *(f"{module.__name__}.{name}" for name in names)]


# The package's own example tells its version, a string.
NAMES = sorted({name for module in MODULES for name in public(module)} - {"orfit.__version__"})


def test_the_reference_has_every_name():
    lines = (Path(__file__).parents[1] / "docs" / "api.md").read_text().split("\n")
    begins = ("::: ", "      heading: ")
    listed = {line.split(": ")[1] for line in lines if line.startswith(begins)}
    assert set(NAMES) <= listed


def test_the_names_are_found():
    assert public(orfit.measures)[1:] == [
        "orfit.measures.forgetting",
        "orfit.measures.backward_transfer",
    ]
    assert {"orfit.TorchModel", "orfit.memory", "orfit.memory.Sketch"} <= set(NAMES)


TORCH = "orfit.TorchModel", "orfit.PerLayer", "orfit.register_layer"


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs(name, tmp_path, monkeypatch):
    if name in TORCH:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    thing = orfit
    for part in name.split(".")[1:]:
        thing = getattr(thing, part)
    scope = {"np": np, "orfit": orfit}
    test = doctest.DocTestParser().get_doctest(thing.__doc__ or "", scope, name, None, None)
    assert test.examples, f"{name} has no example in its docstring"
    said = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)
