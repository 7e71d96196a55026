"""How a learner is doing, from what it keeps anyway: no data are needed."""

import math
from dataclasses import dataclass

ENOUGH = 50  # gradients, before which nothing can be told
UNCERTAIN = 1.5  # S/R above which predictions are uncertain beside the noise
MATTERS = 1.0  # times the noise, above which what was dropped may matter
CHANGED = 2.0  # times what residuals were, above which the system has changed
CORRELATED = 0.3  # neighbouring residuals


@dataclass(frozen=True)
class Health:
    """Numbers to watch, and what they say.

    surprise: S/R, the mean of (gᵀPg + R) / R over a hundred rows or so, none of which counts as
        more than a thousand. Near 1 nothing but noise is expected of a residual (`scale` tells
        whether that is so); well above it predictions are still uncertain. NaN without noise.
    dropped: the energy per row that was dropped, beside R: by how much S/R would be larger if
        nothing were known of dropped directions. Below 1 a larger memory cannot help; above it, it
        may: the tail knows those directions on average, not one by one. (`novelty` does not tell:
        a part of a gradient may be short, and matter beside a small noise.) NaN without noise.
    innovation: the mean of residual² / (gᵀPg + R) lately, beside `scale`, its mean over a longer
        time. 1 where the system stands still; well above 1 where it has moved. `EKF` believes its R
        (scale is 1): there it is the normalised innovation squared, and tells a wrong R or Q.
    correlation: of neighbouring residuals, lately. Near 0 where they are noise; otherwise something
        is there to be learned, such as a lag that the features lack.
    noise, scale: R as it is used; scale R is the variance of the noise in y.
    lowest: whether that is the lowest R that "auto" compares: it predicts better than the others.
    rank, most: how many directions are held, and may be (None: as many as come).
    seen: datapoints learned.
    """

    surprise: float
    dropped: float
    innovation: float
    correlation: float
    noise: float
    scale: float
    rank: int
    most: int | None
    seen: int
    lowest: bool = False

    @property
    def unsure(self) -> bool:
        """Whether predictions are uncertain beside the noise."""
        return self.surprise > UNCERTAIN

    @property
    def crowded(self) -> bool:
        """Whether directions were dropped that may matter beside the noise."""
        return self.rank == self.most and self.dropped > MATTERS

    @property
    def advice(self) -> str:
        """What the numbers say, in a sentence or two."""
        if math.isnan(self.innovation) or self.seen < ENOUGH:
            return f"Too early to tell: {self.seen} rows."
        said = []
        if self.innovation > CHANGED:
            said.append(
                f"Residuals² are lately {self.innovation:.1f} times what is expected: the system "
                "moves, or noise or drift are too small; try a smaller forgetting, or more drift "
                '(forgetting="auto" compares some).'
            )
        if self.innovation < 1 / CHANGED:
            said.append(
                f"Residuals² are lately {self.innovation:.2f} times what is expected: after a "
                "jump, or with too large a noise or drift, intervals are too wide."
            )
        if self.unsure:
            said.append(f"S/R is {self.surprise:.1f}: predictions are uncertain beside the noise.")
        if self.crowded:
            said.append(
                f"What is dropped of a row is {self.dropped:.1f} times the noise: a memory of more "
                f"than {self.most} directions may help."
            )
        if abs(self.correlation) > CORRELATED:
            said.append(
                f"Neighbouring residuals are correlated ({self.correlation:+.2f}): there is "
                "something left to learn; the features may lack a lag, or the system moves."
            )
        if self.noise == 0 and self.rank == self.most:
            said.append('With noise=0 each row is fitted whole: on noisy data take noise="auto".')
        if self.lowest:
            said.append(
                'noise is the lowest that "auto" compares: y is all but exact, or what matters is '
                "small beside the rest of x; then divide each column by its usual size."
            )
        return " ".join(said) or "Residuals are what was expected of them, and look like noise."

    def __str__(self) -> str:
        """A small table, and the advice; a dash where there is nothing to tell yet."""
        of = "" if self.most is None else f" of {self.most}"
        rows = [
            ("S/R", told(self.surprise), "1: predictions are as sure as noise lets them be"),
            ("dropped", told(self.dropped), "below 1: a larger memory would not help"),
            ("innovation", told(self.innovation), "1: residuals are as large as expected"),
            ("correlation", told(self.correlation, "+.2f"), "0: residuals are white"),
            ("noise", told(self.noise), f"× scale {told(self.scale)}: the variance of y's noise"),
            ("rank", f"{self.rank}{of}", f"after {self.seen} rows"),
        ]
        lines = [f"{name:<12}{value:>10}   {meaning}" for name, value, meaning in rows]
        return "\n".join([*lines, self.advice])


def told(number: float, form: str = ".3g") -> str:
    """The number, or a dash where there is none."""
    return "–" if math.isnan(number) else format(number, form)
