"""The structs of core.h as NumPy dtypes: all fields have eight bytes."""

import numpy as np

COUNT, NUMBER, POINTER = "i8", "f8", "u8"


def fields(kind: str, names: str) -> list[tuple[str, str]]:
    """Fields of one kind."""
    return [(name, kind) for name in names.split()]


SCORES = np.dtype(
    fields(COUNT, "heads candidates rows")
    + fields(NUMBER, "unfitted")
    + fields(POINTER, "scale recent_scale neighbours last surprise")
)
RESULT = np.dtype(
    fields(NUMBER, "novelty gradient_length")
    + fields(POINTER, "prediction residual left variance length")
)
BASIS = np.dtype(
    fields(COUNT, "parameters bias kind most capacity columns stride width vector")
    + fields(COUNT, "linear chosen has_tail is_noisy seed")
    + fields(NUMBER, "forgetting drift limit")
    + fields(POINTER, "noise tailed")
    + fields(COUNT, "stored rank seen compactions draws has_history stored_as_given")
    + fields(NUMBER, "parameter_bound prior_variance dropped_energy tail_rows tail_dropping")
    + fields(POINTER, "tail_level tail_dropped rows base W next_W M history shift sigma roots")
    + [("scores", SCORES), ("result", RESULT)]
    + fields(POINTER, "raw raw_again base_products ahead a Ma rest coordinates more")
    + fields(POINTER, "aged floors directions gains innovations variances")
    + fields(POINTER, "vectors spare spectrum_work panel order")
)
DENSE = np.dtype(
    fields(COUNT, "parameters bias stride linear moves drift_kind drift_rank")
    + fields(NUMBER, "noise forgetting limit prior_width cutoff")
    + fields(POINTER, "drift drift_root")
    + fields(COUNT, "makes_steps")
    + fields(NUMBER, "number_A")
    + fields(POINTER, "columns_of_A")
    + fields(COUNT, "rank chosen seen form wound_up time_updated")
    + fields(NUMBER, "parameter_bound amplification width")
    + fields(POINTER, "P D w")
    + [("scores", SCORES), ("result", RESULT)]
    + fields(POINTER, "innovations variances gradient f v before after y z saved_D spare plain")
    + fields(POINTER, "P_before D_before w_before next_w")
)
