/* Where the arrays of a `Basis` lie in two blocks of memory. */
#include "row.c"

/* A length of rows that begin at multiples of 64 bytes, not at the same place of every cache set. */
static int64_t find_stride(int64_t n) { return PADDED(n) + (PADDED(n) / LANES % 2 ? 0 : LANES); }

/* Set the strides; sizes are set. */
API void size_basis(Basis *b) {
    int64_t n = b->most + 2;
    b->columns = b->scores.candidates * b->scores.heads;
    b->stride = find_stride(b->parameters);
    b->vector = (n + 2 * LANES - 1) / (2 * LANES) * 2 * LANES;
    b->width = find_stride(b->capacity + 1);
    if (b->width < b->vector) b->width = find_stride(b->vector);
}

#ifndef LEAVE_GAP /* tests leave space between arrays that must not be touched */
#define LEAVE_GAP(at) ((void)0)
#endif

static void place(uintptr_t *at, int64_t count, size_t size, void *pointer) {
    memcpy(pointer, at, sizeof(*at));
    *at += ((size_t)count * size + 63) / 64 * 64;
    LEAVE_GAP(at);
}
#define PLACE(count, pointer) place(&at, count, sizeof(*(pointer)), &(pointer))

/* Set the pointers of the numbers of a learner, but for rows and base, to a block that begins at a
 * multiple of 64 bytes and holds zeros. Returns its end: with block NULL, how many bytes it needs. */
API int64_t place_basis(Basis *b, char *block) {
    uintptr_t at = (uintptr_t)block;
    int64_t e = b->scores.candidates, columns = b->columns, directions = b->most + 1;
    PLACE(e, b->noise);
    PLACE(e, b->tailed);
    PLACE(e, b->tail_level);
    PLACE(e, b->tail_dropped);
    PLACE(directions * b->width, b->W);
    PLACE(b->kind == UNLIMITED ? 0 : directions * b->width, b->next_W);
    PLACE(b->capacity * b->width, b->M);
    PLACE(b->has_history ? b->capacity * b->width : 0, b->history);
    PLACE(columns * b->width, b->shift);
    PLACE(b->vector, b->sigma);
    PLACE(has_roots(b) ? (1 + (b->is_noisy ? e : 0)) * directions * b->vector : 0, b->roots);
    PLACE(e, b->scores.surprise);
    PLACE(columns, b->scores.scale);
    PLACE(columns, b->scores.recent_scale);
    PLACE(columns, b->scores.neighbours);
    PLACE(columns, b->scores.last);
    return (int64_t)(at - (uintptr_t)block);
}

/* The same for the result of a row and for scratch space, which learners may share that learn one
 * after another. */
API int64_t place_scratch(Basis *b, char *block) {
    uintptr_t at = (uintptr_t)block;
    int64_t e = b->scores.candidates, columns = b->columns, rows = b->capacity;
    int64_t directions = b->most + 1;
    int64_t wide = b->vector > PADDED(columns) ? b->vector : PADDED(columns);
    PLACE(columns, b->result.prediction);
    PLACE(columns, b->result.residual);
    PLACE(columns, b->result.left);
    PLACE(e, b->result.variance);
    PLACE(e, b->result.length);
    PLACE(b->width, b->raw);
    PLACE(b->width, b->raw_again);
    PLACE(columns, b->base_products);
    PLACE((rows + columns) * VECTORS, b->ahead);
    PLACE(b->width, b->a);
    PLACE(b->width, b->Ma);
    PLACE(b->width, b->rest);
    PLACE(b->width, b->coordinates);
    PLACE(b->width, b->more);
    PLACE(b->vector, b->aged);
    PLACE(e, b->floors);
    PLACE(e * b->vector, b->directions);
    PLACE(columns, b->gains);
    PLACE(columns, b->innovations);
    PLACE(e, b->variances);
    PLACE(has_roots(b) ? 0 : (b->most + 2) * b->vector, b->vectors);
    PLACE(b->kind == UNLIMITED ? 0 : rows * (2 * b->vector + wide) + directions * b->width, b->spare);
    PLACE(SPECTRUM_WORK(b->most + 2), b->spectrum_work);
    PLACE(rows * PANEL, b->panel);
    PLACE(6 * rows, b->order);
    return (int64_t)(at - (uintptr_t)block);
}
