"""What a user says of a meter."""

from dataclasses import dataclass

from orfit import validation

MOST = 1 << 16  # probes: an estimate that is right to half a percent


@dataclass(frozen=True)
class Meter:
    """Measures forgetting: how far the predictions of all past rows have moved, and how wrong they
    are now, though no row is kept.

    probes: r, how many random sums of the past are kept. An estimate is off by √(2/r) of itself:
        a quarter with 32.
    seed: of the random signs.

    Each probe adds up all gradients ever learned, with random signs ω: Z ← Z + g ωᵀ, s ← s + ω f(x)
    after the row's step, and likewise for y. In (Zᵀw − s)² the signs of two rows cancel on average,
    and what is left is the sum over all rows of (f(x) now − f(x) then)²: without bias, whatever the
    stream, and exactly where the model is linear in w (`TorchModel(tangent=True)` is). For other
    models it is the change along each row's gradient, gᵀ(w now − w then): what a past prediction
    would have become if the model had been its tangent there.

    `learner.meter` reads it (`Readings`). Every row counts alike, however long ago, also where the
    learner forgets on purpose. Where guesses are compared (noise="auto", ...), the w in use counts:
    when another guess is chosen all predictions change, and the meter shows it.

    It costs r p a row (what r more directions would, at matrix speed) and (r + 16) p numbers; those
    are float64, on the host, also of a float32 model: they are sums of very many terms.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.standard_normal((300, 50)), rng.standard_normal(300)
        >>> learner = orfit.ORFit(orfit.Linear(50), 10, noise=1.0, meter=orfit.Meter(1000))
        >>> updates = learner.learn_each(X, y)
        >>> truth = np.mean((y - learner.predict(X)) ** 2)  # who has the rows may look
        >>> measured = learner.meter.error.mean
        >>> bool(measured.low < truth < measured.high)
        True
    """

    probes: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        # NumPy's whole numbers too; a file holds Python's.
        object.__setattr__(self, "probes", validation.count("probes", self.probes, most=MOST))
        object.__setattr__(self, "seed", validation.count("seed", self.seed, least=0))
