"""What the estimators share: their parameters."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from orfit.learners.gain import GainLearner
from orfit.river.engine import Engine
from orfit.river.settings import Settings


class Estimator:
    """Parameters as river reads them from the signature, and the engine that they make."""

    _heads: int | None = None
    _centred = False  # whether labels are learned from the mean of the first ones on
    _classified = False  # whether they are classes

    def __init__(
        self,
        memory: int = 50,
        noise: float | str = "auto",
        forgetting: float | str = 1.0,
        scaling: bool = True,
        features: str | None = None,
        n_components: int = 300,
        fit_intercept: bool = True,
        seed: int | None = None,
    ) -> None:
        self.memory = memory
        self.noise = noise
        self.forgetting = forgetting
        self.scaling = scaling
        self.features = features
        self.n_components = n_components
        self.fit_intercept = fit_intercept
        self.seed = seed
        settings = Settings(**{field.name: getattr(self, field.name) for field in fields(Settings)})
        settings.check()
        self._engine = Engine(settings, self._heads, self._centred, self._classified)
        self._names: dict[Any, int] = {}  # of classes or targets: which head is theirs

    @property
    def learner(self) -> GainLearner | None:
        """The learner behind it, with all rows learned; None before the first.

        Its inputs are scaled. `learner.health()` tells how it is doing.
        """
        return self._engine.learner

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"memory": 2, "noise": 1.0, "forgetting": 0.99, "scaling": False}
        yield {"features": "fourier", "n_components": 30, "seed": 1}
