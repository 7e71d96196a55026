"""An estimator in one file, and back: it goes on as if it had never stopped, bit for bit."""

import os
from typing import Any

import numpy as np

from orfit import checkpoint
from orfit.checkpoint import CheckpointError
from orfit.schema import Check, Fields, listed, mapping, optional, record, text
from orfit.sklearn.classifier import ORFitClassifier
from orfit.sklearn.first import Learned
from orfit.sklearn.regressor import ORFitRegressor
from orfit.validation import Array
from orfit.version import __version__

KINDS = {kind.__name__: kind for kind in (ORFitRegressor, ORFitClassifier)}


def load(path: str | os.PathLike[str]) -> Any:
    """The estimator that `save` wrote to `path`; it goes on bit-equally to one never saved.

    A `random_state` that was no number is None now; the features are the same all the same.

    Examples:
        >>> from orfit.sklearn import ORFitRegressor, load
        >>> model = ORFitRegressor().fit([[1.0], [2.0], [3.0]], [1.0, 2.0, 4.0])
        >>> model.save("model.safetensors")
        >>> print(load("model.safetensors").predict([[2.5]]) == model.predict([[2.5]]))
        [ True]
    """
    arrays, header = checkpoint.read(path)
    name = os.fspath(path)
    if header.get("kind") not in [*KINDS]:  # whatever it is
        raise CheckpointError(f"{name} holds no estimator; orfit.load reads a learner by itself")
    try:
        return _restored(arrays, header)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from None
    except (ValueError, OverflowError) as error:
        raise CheckpointError(f"{name} is damaged ({error})") from None
    except MemoryError as error:
        raise CheckpointError(f"{name} asks for more memory ({error})") from None


def state(estimator: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and plain values from which `load` makes it again."""
    arrays, learned = estimator._learned.state()
    names = getattr(estimator, "feature_names_in_", None)
    classes = estimator._learned.names
    return arrays, {
        "kind": type(estimator).__name__,
        "version": __version__,
        "params": {name: _plain(name, value) for name, value in estimator.get_params().items()},
        "columns": None if names is None else names.tolist(),
        "classes": None if classes is None else {
            "dtype": classes.dtype.str, "values": classes.tolist()
        },
        "learned": learned,
    }  # fmt: skip


def _plain(name: str, value: Any) -> Any:
    """As JSON holds it."""
    if name == "random_state" and not isinstance(value, int | np.integer):
        return None
    if name == "dtype" and value is not None:
        return np.dtype(value).name
    return value.item() if isinstance(value, np.generic) else value


def _simple(name: str, value: Any) -> Any:
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"{name} is neither a number nor text")
    return value


def _classes(name: str, value: Any) -> Array:
    found = record({"dtype": text, "values": listed(_simple, least=1)})(name, value)
    try:
        classes = np.array(found["values"], np.dtype(found["dtype"]))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} are no classes: {error!s:.200}") from None
    if len(set(classes.tolist())) != len(classes):
        raise ValueError(f"{name} has a class twice")
    return classes


def _params(name: str, value: Any) -> dict[str, Any]:
    given = mapping(name, value)
    checks: dict[str, Check] = dict.fromkeys(ORFitRegressor().get_params(), _simple)
    return dict(record(checks)(name, given))


FIELDS: Fields = {
    "kind": text,
    "version": text,
    "params": _params,
    "columns": optional(listed(text)),
    "classes": optional(_classes),
    "learned": mapping,
}


def _restored(arrays: dict[str, Array], header: dict[str, Any]) -> Any:
    values = record(FIELDS)("header", header)
    estimator = KINDS[values["kind"]](**values["params"])
    learned, classes = Learned.restored(arrays, values["learned"]), values["classes"]
    d, q = len(learned.scaled.inputs.mean), learned.scaled.outputs
    if (learned.scaled.classes is None) is not estimator._amounts or (
        classes is None
    ) is not estimator._amounts:
        raise ValueError(f"what was learned is not that of {values['kind']}")
    if classes is not None:
        if len(classes) != q:
            raise ValueError(f"{len(classes)} classes were not learned with {q} targets")
        learned.names = classes
    columns = values["columns"]
    if columns is not None:
        if len(columns) != d:
            raise ValueError(f"{len(columns)} names are not those of {d} columns")
        estimator.feature_names_in_ = np.array(columns, object)
    estimator.n_features_in_, estimator._learned = d, learned
    return estimator
