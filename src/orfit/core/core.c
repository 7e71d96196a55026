/* The core in one translation unit: the compiler inlines its functions, and only TABLE is exported. */
#include "dense.c"

const struct Core TABLE = {
    .target = TARGET_NAME,
    .basis_bytes = (int64_t)sizeof(Basis),
    .dense_bytes = (int64_t)sizeof(Dense),
    .size_basis = size_basis,
    .place_basis = place_basis,
    .place_scratch = place_scratch,
    .learn_row = learn_row,
    .predict_row = predict_row,
    .learn_rows = learn_rows,
    .copy_parameters = copy_parameters,
    .place_dense = place_dense,
    .learn_dense_row = learn_dense_row,
    .predict_dense_row = predict_dense_row,
    .learn_dense_row_later = learn_dense_row_later,
    .learn_dense_rows = learn_dense_rows,
    .advance_dense = advance_dense,
    .copy_dense_parameters = copy_dense_parameters,
    .update_scores = update_scores,
    .extend_tail = extend_tail,
    .draw = draw,
};
