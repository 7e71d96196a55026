"""The parameters of an estimator, checked together: what is refused says so before any row."""

from dataclasses import dataclass

from orfit import validation
from orfit.faces import learner_for
from orfit.features import Drawn, Fourier, ReLU

MAPS: dict[str, type[Drawn]] = {kind.kind: kind for kind in (Fourier, ReLU)}


@dataclass(frozen=True)
class Settings:
    """What an `Engine` is made from."""

    memory: int
    noise: float | str
    forgetting: float | str
    scaling: bool
    features: str | None
    n_components: int
    fit_intercept: bool
    seed: int | None

    def check(self) -> None:
        """Raise where one is not what it should be."""
        learner_for(1, None, self.memory, noise=self.noise, forgetting=self.forgetting)
        validation.flag("scaling", self.scaling)
        validation.flag("fit_intercept", self.fit_intercept)
        validation.count("n_components", self.n_components)
        if self.seed is not None:
            validation.count("seed", self.seed, least=0)
        if self.features is not None and self.features not in MAPS:
            known = ", ".join(f'"{name}"' for name in MAPS)
            raise ValueError(f"features must be None, {known}; it is {self.features!r}")

    def map(self) -> Drawn | None:
        """The map that makes features of a row's columns; None: they are the features."""
        return MAPS[self.features](self.n_components, self.seed or 0) if self.features else None
