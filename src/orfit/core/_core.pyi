from typing import Any, Literal

from orfit.validation import Array

CODES: dict[str, int]

def target() -> str: ...
def wait_before_fork() -> None: ...
def continue_after_fork() -> None: ...

class Lock:
    def __enter__(self) -> Literal[True]: ...
    def __exit__(self, *exception: object) -> None: ...
    def is_owned(self) -> bool: ...
    def reset(self) -> None: ...

class Update:
    prediction: Any
    residual: Any
    step: float
    novelty: float
    conflict: Any
    rank: int
    variance: Any
    def __init__(
        self,
        prediction: Any,
        residual: Any,
        step: float,
        novelty: float,
        conflict: Any,
        rank: int,
        variance: Any = ...,
    ) -> None: ...

class Rows:
    struct: Array
    exported: Any
    lock: Lock
    is_ready: bool
    is_plain: bool
    has_heads: bool
    @property
    def seen(self) -> int: ...
    def open_basis(self, struct: Array, lock: Lock, is_float: bool, has_heads: bool) -> None: ...
    def open_dense(self, struct: Array, lock: Lock, is_float: bool, has_heads: bool) -> None: ...
    def state(self) -> Any: ...
    def place(self, address: int) -> int: ...
    def place_scratch(self, address: int) -> int: ...
    def copy_parameters(self, out: Array) -> None: ...
    def learn(self, x: object, y: object) -> Update | None: ...
    def predict(self, x: object) -> Any: ...
    def learn_gradient(
        self,
        gradient: Array,
        offset: Array | None,
        labels: Array,
        weight_root: float,
        w: Array | None = None,
    ) -> Update | int: ...
    def learn_each(
        self,
        gradients: Array,
        offsets: Array | None,
        labels: Array,
        outputs: list[Array],
        first: int,
    ) -> tuple[int, int]: ...
    def advance(self, w: Array | None, influence: Array | None) -> int: ...

def learn_fleet(
    fleet: list[Any],
    owners: Array,
    gradients: Array,
    labels: Array,
    predictions: Array,
    codes: Array,
) -> None: ...
def extend_tail(
    floors: Array,
    level: Array,
    dropped: Array,
    rows: float,
    dropping: float,
    energies: Array,
    least: float,
    unkept: float,
) -> None: ...
def update_scores(
    rows: int,
    noises: Array,
    variance: Array,
    innovation: Array,
    scale: Array,
    recent_scale: Array,
    neighbours: Array,
    last: Array,
    surprise: Array,
) -> int: ...
def draw(seed: int, draws: int, count: int) -> int: ...
def gemm(alpha: float, A: Array, transposed: bool, B: Array, beta: float, C: Array) -> Array: ...
