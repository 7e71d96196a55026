"""The health of a learner, from numbers that it keeps; no data are needed."""

import math
from dataclasses import dataclass

ENOUGH = 50  # gradients; with fewer there is no advice
UNCERTAIN = 1.5  # S/R above which predictions are uncertain relative to the noise
MATTERS = 1.0  # times the noise; a larger dropped energy may matter
CHANGED = 2.0  # ratio of residuals² above which the system has changed
CORRELATED = 0.3  # neighbouring residuals


@dataclass(frozen=True)
class Health:
    """Numbers to watch, and advice.

    surprise: S/R, the mean of (gᵀPg + R) / R over about a hundred rows, each limited to a
        thousand. Near 1 residuals are expected to be noise (`scale` shows whether they are); well
        above 1 predictions are still uncertain. NaN without noise.
    dropped: the dropped energy per row relative to R: how much larger S/R would be if nothing
        were known of dropped directions. Below 1 a larger memory cannot help; above 1 it may,
        because the tail has only the mean over those directions. (`novelty` does not show this: a
        part of a gradient can be short and still matter with a small noise.) NaN without noise.
    innovation: the recent mean of residual² / (gᵀPg + R), relative to `scale`, its mean over a
        longer time. 1 if the system is constant; well above 1 if it has changed. `EKF` uses its R
        (scale is 1): then it is the normalised innovation squared, and shows a wrong R or Q.
    correlation: of neighbouring recent residuals. Near 0 if they are noise; otherwise there is
        something to learn, such as a lag that the features lack.
    noise, scale: R as it is used; scale R is the variance of the noise in y.
    lowest: whether R is the lowest that "auto" compares: it predicts better than the others.
    rank, most: how many directions are kept, and may be kept (None: no limit).
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
        """Whether predictions are uncertain relative to the noise."""
        return self.surprise > UNCERTAIN

    @property
    def crowded(self) -> bool:
        """Whether directions were dropped that may matter relative to the noise."""
        return self.rank == self.most and self.dropped > MATTERS

    @property
    def advice(self) -> str:
        """The interpretation of the numbers, in a sentence or two."""
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
        """A small table and the advice; a dash where a number is not known yet."""
        of = "" if self.most is None else f" of {self.most}"
        rows = [
            ("S/R", as_text(self.surprise), "1: predictions are as sure as noise lets them be"),
            ("dropped", as_text(self.dropped), "below 1: a larger memory would not help"),
            ("innovation", as_text(self.innovation), "1: residuals are as large as expected"),
            ("correlation", as_text(self.correlation, "+.2f"), "0: residuals are white"),
            (
                "noise",
                as_text(self.noise),
                f"× scale {as_text(self.scale)}: the variance of y's noise",
            ),
            ("rank", f"{self.rank}{of}", f"after {self.seen} rows"),
        ]
        lines = [f"{name:<12}{value:>10}   {meaning}" for name, value, meaning in rows]
        return "\n".join([*lines, self.advice])


def as_text(number: float, form: str = ".3g") -> str:
    """The number as text, or a dash for NaN."""
    return "–" if math.isnan(number) else format(number, form)
