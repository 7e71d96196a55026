"""What the regressor and the classifier share: parameters, validation, saving."""

import operator
import os
from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from orfit import checkpoint, validation
from orfit.faces.rows import Rows
from orfit.sklearn.first import Learned
from orfit.sklearn.setup import Setup
from orfit.validation import DTYPES, Array

SEEDS = 2**31 - 1
FEW = 16  # rows, for which the checks of scikit-learn would take most of the time
NAMES = (
    "memory",
    "noise",
    "forgetting",
    "features",
    "n_components",
    "gamma",
    "fit_intercept",
    "dtype",
    "random_state",
)


class Estimator(BaseEstimator):
    """An estimator on a `Learned`."""

    _amounts = True  # whether targets have units
    _checked: tuple[Any, ...] = ()  # the parameters when they were checked last
    n_features_in_: int

    def __init__(
        self,
        memory: int = 50,
        *,
        noise: float | str = "auto",
        forgetting: float | str = 1.0,
        features: str | None = None,
        n_components: int = 2000,
        gamma: float | str = "median",
        fit_intercept: bool = True,
        dtype: Any = None,
        random_state: Any = None,
    ) -> None:
        self.memory = memory
        self.noise = noise
        self.forgetting = forgetting
        self.features = features
        self.n_components = n_components
        self.gamma = gamma
        self.fit_intercept = fit_intercept
        self.dtype = dtype
        self.random_state = random_state

    @property
    def learner_(self) -> Any:
        """The learner behind it, whose rows are scaled: `health()` says how it is doing."""
        check_is_fitted(self)
        return self._learned.scaled.learner

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, atomically; `orfit.sklearn.load` reads it."""
        from orfit.sklearn import saved

        check_is_fitted(self)
        checkpoint.writer.now(path, checkpoint.Content.of(*saved.state(self)))

    def __getstate__(self) -> dict[str, Any]:
        """Without `updates_`, which are as long as the last call's rows."""
        state: dict[str, Any] = super().__getstate__()
        left_out = "updates_", "_checked"
        return {name: value for name, value in state.items() if name not in left_out}

    def __sklearn_is_fitted__(self) -> bool:
        return self._began

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _settings(self, X: Any) -> Setup:
        """The parameters, checked, as they are now."""
        given = self.get_params()
        seed = check_random_state(given.pop("random_state")).randint(SEEDS)
        dtype = X.dtype if self.dtype is None else np.dtype(self.dtype)
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be None, float32 or float64; it is {self.dtype!r}")
        return Setup.of(given | {"seed": int(seed), "dtype": dtype.name})

    def _check_settings(self) -> None:
        """Raise where a parameter is no longer what rows so far were learned with."""
        present = tuple([getattr(self, name) for name in NAMES])
        if len(self._checked) == len(present) and all(map(operator.is_, present, self._checked)):
            return
        began, given = self._learned.scaled.settings, self.get_params()
        seed, dtype = given.pop("random_state"), given.pop("dtype")
        given |= {"seed": began.seed, "dtype": began.dtype}
        if dtype is not None:
            given["dtype"] = np.dtype(dtype).name
        if isinstance(seed, int | np.integer) and began.features is not None:  # else nobody knows
            given["seed"] = int(check_random_state(seed).randint(SEEDS))
        now, before = asdict(Setup.of(given)), asdict(began)
        for name in now:
            if now[name] != before[name]:
                said = "random_state" if name == "seed" else name
                raise ValueError(
                    f"{said} was set after rows had been learned, and partial_fit cannot change "
                    "what they were learned with: set it back, or call fit to begin anew"
                )
        if not any(isinstance(value, np.ndarray) for value in present):  # which can change
            self._checked = present

    def _is_common(self, X: Any) -> bool:
        """Whether these are a few rows of the common kind, which scikit-learn would not change."""
        return (
            type(X) is np.ndarray
            and X.ndim == 2
            and 0 < len(X) <= FEW
            and X.shape[1] == getattr(self, "n_features_in_", None)
            and X.dtype in DTYPES
            and X.flags.c_contiguous
            and not hasattr(self, "feature_names_in_")
            and validation.finite(X)
        )

    def _inputs(self, X: Any, **settings: Any) -> Any:
        """X, or X and y, as scikit-learn checks them: names and number of columns, too."""
        # In one order, so that frames round as arrays do.
        kinds: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
        return validate_data(self, X, order="C", **kinds, **settings)

    @property
    def _began(self) -> bool:
        return hasattr(self, "_learned")

    def _learn(
        self,
        X: Any,
        Y: Array,
        sample_weight: object,
        heads: int | None,
        restart: bool,
        names: Array | None = None,
    ) -> None:
        """Learn rows, after those before, or as the first ones. names: the class of each head."""
        rows = Rows(X, Y, _weights(sample_weight, len(Y)))
        if restart:
            begun = Learned.begun(self._settings(X), rows, heads, self._amounts, names)
            self._learned, self.updates_ = begun
        else:
            self._check_settings()
            self.updates_ = self._learned.learn(rows, names)

    def _linear(self) -> tuple[Array, Array]:
        """Coefficients, q×d, and intercepts."""
        if not self._began:
            raise AttributeError(f"this {type(self).__name__} has not learned anything yet")
        slopes, bias = self._learned.scaled.linear()
        dtype = self._learned.scaled.settings.dtype
        return slopes.astype(dtype), bias.astype(dtype)

    def _predicted(self, X: Any, std: bool = False) -> tuple[Array, Array | None]:
        check_is_fitted(self)
        X = X if self._is_common(X) else self._inputs(X, reset=False)
        F, spread = self._learned.scaled.predict(X, std)
        dtype = self._learned.scaled.settings.dtype
        return F.astype(dtype), None if spread is None else spread.astype(dtype)


def _weights(sample_weight: object, rows: int) -> Array | None:
    if sample_weight is None:
        return None
    weight = validation.numbers("sample_weight", sample_weight)
    if weight.ndim == 0:
        weight = np.full(rows, float(weight))
    if weight.shape != (rows,):
        raise ValueError(f"sample_weight must have shape ({rows},); it has {weight.shape}")
    if weight.min() < 0:
        raise ValueError(f"sample_weight must not be negative; it is {weight.min():g}")
    return weight
