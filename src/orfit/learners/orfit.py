"""ORFit and the baselines that differ from it by the memory alone."""

import functools
from typing import Any

import numpy as np

from orfit import door, small, tall
from orfit.door import Array
from orfit.learners.advice import InterpolationWarning, SaturationWarning, advise
from orfit.learners.dynamics import Dynamics
from orfit.learners.moving import Moving
from orfit.learners.onestep import OneStep
from orfit.learners.rows import Auto
from orfit.learners.step import check_step
from orfit.learners.update import Update, Updates
from orfit.memory import Growing, Memory, Nothing, Principal, Unlimited
from orfit.meter import Meter
from orfit.models import CompleteModel, Model

SHORTEST = 1e-3  # of a Gauss–Newton step, below which it is given up
SPANNED = 1e-6  # the novelty of a row that has hardly anything new
MOST_STEPS = 1000  # on one block: more would not end
CONTRADICTED = 1e-3  # of the largest label: what then must not be left to fit

number_of_steps = functools.partial(door.count, most=MOST_STEPS)


class ORFit(Moving):
    """Orthogonal recursive fitting: fit each datapoint, move only where the past does not look.

    memory: None remembers every direction (alg:orfit1_infmem, alg:borfit_infmem), a number m the
        principal m (alg:orfit_ipca, alg:borfit_ipca), or any memory of `orfit.memory`:
        `Latest(m)` is the paper's ORFit-latest, `Random(m)` its ORFit-random.
    noise: R, the variance of the noise in y, against a prior of variance 1 on w. With 0 each
        datapoint is interpolated; with R > 0 and an unlimited memory this is ridge regression,
        that is RLS, exactly. With m directions it is RLS in m·p memory as long as they span what
        was seen. "auto" tries eight powers of ten side by side, each with a column of w, and uses
        what predicted best lately; where the model is not linear in w, the others are compared
        along its tangent at the one in use.
    tail: whether P knows, on average, what was seen along directions that were dropped
        (`orfit.tail`); with False they count as never seen. "auto" tries both. Without noise, and
        for memories but `Principal`, there is none.
    forgetting: λ in (0, 1]: before each step the past counts λ times less. Unlike in EW-RLS the
        prior keeps its weight: what the data lose goes to the present w, so P does not wind up.
    drift: q, the variance by which each parameter wanders before each block, P ← P + q I; it needs
        a number noise > 0.
    dynamics, control: A and B of a w that moves by itself before each block, w ← A w + B u and
        P ← A P Aᵀ + q I, as for `EKF`; in m·p, where A is sparse or a number. `memory.motion` says
        what is exact. Needs noise > 0.

    steps: for nonlinear models, how many Gauss–Newton steps at most to take on each block, each
        along the memory's P and shortened until the residual does not grow. With more than one, the
        gradient that is remembered is that at the end. They interpolate: noise must be 0.
    tolerance: no further step where every residual is at most this.

    rows: how rows are learned one after another: "plain", "compiled", "coordinates", or what is
        fastest, "auto". The steps are the same; `way` tells which is in use.
    meter: `orfit.Meter(32)` measures what is forgotten; `learner.meter` shows it.

    While the memory has dropped nothing, past predictions of a linear model do not move (lem:step)
    and w is the interpolator nearest to w0 (thm:implicit_bias). O(m c p) a step.

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(4), memory=2)
        >>> updates = learner.learn_each(np.eye(4)[:2], [5.0, 7.0])
        >>> print(learner.predict(np.eye(4)))
        [5. 7. 0. 0.]
        >>> print(learner.learn(np.eye(4)[0], 6.0).conflict)  # seen before, as 5
        1.0
    """

    def __init__(
        self,
        model: Model,
        memory: Memory | int | str | None = None,
        *,
        w0: object = None,
        noise: float | str = 0.0,
        forgetting: float | str = 1.0,
        tail: bool | str = True,
        drift: float = 0.0,
        dynamics: Any = None,
        control: object = None,
        steps: int = 1,
        tolerance: float = 1e-6,
        rows: str | Auto = "auto",
        meter: Meter | None = None,
    ) -> None:
        self.steps = number_of_steps("steps", steps)
        self.tolerance = door.nonnegative("tolerance", tolerance)
        super().__init__(
            model,
            as_memory(memory),
            w0,
            noise,
            forgetting,
            rows,
            tail,
            drift,
            meter,
            dynamics=dynamics,
            control=control,
        )
        self._full = self.memory.rank >= model.size  # and so has said that it is
        self._exploded, self._largest = False, 0.0  # so has w, and the largest label seen

    def _checked_noise(self, noise: object) -> Any:
        checked = super()._checked_noise(noise)
        if self.steps > 1 and checked:
            raise ValueError("repeated steps interpolate: with noise > 0, steps must be 1")
        return checked

    def _check_guesses(self, model: CompleteModel, memory: Memory) -> None:
        super()._check_guesses(model, memory)
        if self.steps > 1 and len(self.guesses) > 1:
            raise ValueError('repeated steps find one w: with "auto", steps must be 1')

    def _checked_drift(self, drift: object, memory: Memory, size: int) -> Any:
        Q = super()._checked_drift(drift, memory, size)
        if Q:
            self._check_unit("drift")
        return Q

    def _check_unit(self, name: str) -> None:
        """P is known in units of the noise: there must be one."""
        if self.guesses.noise == 0 or len(self.guesses) > 1:
            raise ValueError(
                f'with {name}, noise must be a number > 0, and tail and forgetting not "auto"'
            )

    def _check_motion(self, dynamics: Dynamics, memory: Memory) -> None:
        super()._check_motion(dynamics, memory)
        if dynamics.moves:
            self._check_unit("dynamics")
            if self.fading != 1:
                raise ValueError("dynamics say how the past fades: forgetting must be 1")
        if dynamics.turns and not self.guesses.tails.all():
            raise ValueError("a matrix moves what is outside the memory too: tail must be True")

    def _look_for_ways(self) -> None:
        self._checked_drift(self.drift, self.memory, self.model.size)  # the noise may have changed
        self._check_motion(self._dynamics, self.memory)
        super()._look_for_ways()

    def _watch(self, told: Update | Updates) -> None:
        super()._watch(told)
        rank = told.rank if isinstance(told, Update) else told.rank[-1] if len(told) else 0
        full = bool(rank >= self.model.size)
        if full is not self._full:
            self._full = full
            if full and self.noise == 0:
                advise(
                    f"the memory spans all {self.model.size} parameters: no further datapoint can "
                    "be fitted without forgetting. With noise > 0 ORFit goes on as RLS does.",
                    SaturationWarning,
                )
        if self.noise > 0 or self._exploded or not self.model.linear:
            return
        if not np.size(told.prediction):
            return
        self._largest = max(self._largest, _most(told.prediction + told.residual))
        # Hardly anything of such a row is new. Where labels agree with each other, hardly anything
        # is left to fit, either; where they do not, w takes a step 1 / novelty times as long.
        if isinstance(told, Update):
            new = told.novelty
            contradicts = 0 < new < SPANNED and _most(told.residual) > CONTRADICTED * self._largest
        else:
            residual = np.abs(told.residual).reshape(len(told), -1).max(axis=1)
            spanned = (told.novelty > 0) & (told.novelty < SPANNED)
            new = told.novelty.min(where=spanned, initial=1.0)
            contradicts = bool((residual[spanned] > CONTRADICTED * self._largest).any())
        if contradicts:
            self._exploded = True
            advise(
                f"a row of which only {new:.0e} is new contradicts those before "
                "it: with noise=0 each is fitted whole, and w explodes. "
                'noise="auto" finds how much noise there is.',
                InterpolationWarning,
            )

    def _learn(self, X: Array, Y: Array) -> Update:
        if self.steps == 1 or self.model.linear:
            return super()._learn(X, Y)
        prediction, residual, G = self._linearize(self._w, X, Y)
        w, left, novelty = self._w, residual, None
        for _ in range(self.steps):
            past = self.memory.split(G)
            novelty = past.novelty if novelty is None else novelty
            z, _ = small.fit(past.factor, 0.0, self.tiled(left))
            check_step(z)
            nearer = self._shortened(w, past.displacement(z).reshape(w.shape), left, X, Y)
            if nearer is None:
                break
            w, left, G = nearer
            if np.abs(left).max() <= self.tolerance:
                break
        moved = w - self._w
        length = small.frobenius(tall.norms(moved.reshape(len(moved), -1)))
        check_step(length)
        past = self.memory.split(G, forgetting=self.forgetting)
        self._w = w
        self.memory.remember(past)
        self._probe(G, self._carried(w), left)
        return Update(prediction, residual, length, novelty or 0.0, left, self.memory.rank)

    def _shortened(
        self, w: Any, displacement: Any, left: Array, X: Array, Y: Array
    ) -> tuple[Any, Array, Any] | None:
        """The longest of a step and its halves that does not let the residual grow, and what then.

        None where none of them helps.
        """
        share = 1.0
        while share > SHORTEST:
            ahead = w + share * displacement
            try:
                _, residual, G = self._linearize(ahead, X, Y)
            except ValueError:  # there the model leaves the finite numbers
                residual = np.array([np.inf])
            if small.frobenius(residual) < small.frobenius(left):
                return ahead, residual, G
            share /= 2
        return None

    def settings(self) -> dict[str, Any]:
        plain = {"memory": self.memory.given} | self.guesses.settings()
        if self.steps > 1:
            plain |= {"steps": self.steps, "tolerance": self.tolerance}
        return plain | super().settings()


class OneStepSGD(OneStep):
    """One gradient step that fits the datapoint (eq:stepsize), with nothing remembered.

    The paper's baseline One-Step SGD; known in adaptive filtering as the projection algorithm, or
    NLMS with step size 1.

    Examples:
        >>> learner = orfit.OneStepSGD(orfit.Linear(2))
        >>> updates = learner.learn_each([[1.0, 0.0], [1.0, 1.0]], [2.0, 0.0])
        >>> print(f"{learner.predict([1.0, 0.0]):.3f}")  # the first label was 2
        1.000
    """

    def __init__(self, model: Model, *, w0: object = None, meter: Meter | None = None) -> None:
        super().__init__(model, Nothing(), w0, meter=meter)

    def _checked_noise(self, noise: object) -> float:
        if door.nonnegative("noise", noise):
            raise ValueError(
                "One-Step SGD fits each datapoint whole; with noise there is "
                "ORFit(model, orfit.memory.Nothing(), noise=…)"
            )
        return 0.0

    def _checked_forgetting(self, forgetting: object) -> float:
        if door.fraction("forgetting", forgetting) < 1:
            raise ValueError("One-Step SGD remembers nothing that could be forgotten")
        return 1.0


def as_memory(memory: Any) -> Memory:
    """The memory that the argument stands for."""
    if memory is None:
        return Unlimited()
    if isinstance(memory, Memory):
        return memory
    if isinstance(memory, str) and memory == "auto":
        return Growing()
    if not isinstance(memory, int | np.integer) or isinstance(memory, bool):
        raise ValueError(
            'memory must be None, a whole number, "auto", or a memory such as '
            f"orfit.memory.Latest(10); it is {memory!r}"
        )
    return Principal(door.count("memory", memory))


def _most(outputs: Any) -> float:
    """The largest absolute value of a number, or of many."""
    return abs(outputs) if isinstance(outputs, float) else float(np.abs(outputs).max())
