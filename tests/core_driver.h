/* Learners for C programs that test the core: their memory, random streams, and a hash of all their
 * numbers. */
#include <stdio.h>
#include <stdlib.h>

#ifdef ORFIT_GAPS /* space between arrays that must not be touched: AddressSanitizer reports it */
#include <sanitizer/asan_interface.h>
static int gaps_are_forbidden;
static void leave_gap(uintptr_t *at);
#define LEAVE_GAP(at) leave_gap(at)
#endif
#include "core.c"

enum { GAP = 64, MOST_BLOCKS = 64 };
#ifdef ORFIT_GAPS
static void leave_gap(uintptr_t *at) {
    if (gaps_are_forbidden) ASAN_POISON_MEMORY_REGION((void *)*at, GAP);
    *at += GAP;
}
#endif

/* Zeros that begin at a multiple of 64 bytes; `release_all` frees them. */
static void *blocks[MOST_BLOCKS];
static int block_count;
static void *reserve(size_t bytes) {
    char *block = calloc(bytes + 64, 1);
    if (!block || block_count == MOST_BLOCKS) exit(2);
    blocks[block_count++] = block;
#ifdef ORFIT_GAPS
    {
        char *start = block + (64 - (uintptr_t)block % 64) % 64;
        ASAN_POISON_MEMORY_REGION(start + bytes, (size_t)(block + bytes + 64 - (start + bytes)));
    }
#endif
    return block + (64 - (uintptr_t)block % 64) % 64;
}
static void release_all(void) {
    while (block_count) {
        block_count--;
        free(blocks[block_count]);
    }
}

/* xorshift64* (Vigna 2016). */
static uint64_t state = 88172645463325252u;
static uint64_t draw_bits(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(2685821657736338717);
}
static int draw_below(int count) { return (int)(draw_bits() >> 33) % count; }
/* From -1 to 1, in steps of 2^-20, which every number type has. */
static double draw_number(void) { return ((double)(draw_bits() >> 43) - 0x1p20) * 0x1p-20; }

/* Sizes and settings; all other fields are zero. */
static void place_learner(Basis *b) {
    char *block;
    b->limit = LARGEST_NUMBER / 4;
    if (sizeof(REAL) < sizeof(SMALL)) b->limit = (SMALL)(3.4028234e38 / 4);
    b->prior_variance = 1;
    b->has_tail = b->kind == PRINCIPAL;
    size_basis(b);
    b->rows = reserve((size_t)(b->capacity * b->stride) * sizeof(REAL));
    b->base = reserve((size_t)(b->columns * b->stride) * sizeof(REAL));
    block = reserve((size_t)place_basis(b, NULL));
#ifdef ORFIT_GAPS
    gaps_are_forbidden = 1;
#endif
    place_basis(b, block);
#ifdef ORFIT_GAPS
    gaps_are_forbidden = 0;
#endif
    block = reserve((size_t)place_scratch(b, NULL));
#ifdef ORFIT_GAPS
    gaps_are_forbidden = 1;
#endif
    place_scratch(b, block);
#ifdef ORFIT_GAPS
    gaps_are_forbidden = 0;
#endif
}

static void place_filter(Dense *q) {
    char *block = reserve((size_t)place_dense(q, NULL));
    q->limit = LARGEST_NUMBER / 4;
    if (sizeof(REAL) < sizeof(SMALL)) q->limit = (SMALL)(3.4028234e38 / 4);
    q->prior_width = q->width = q->amplification = 1;
    q->cutoff = CUTOFF;
    q->scores.candidates = 1;
#ifdef ORFIT_GAPS
    gaps_are_forbidden = 1;
#endif
    place_dense(q, block);
#ifdef ORFIT_GAPS
    gaps_are_forbidden = 0;
#endif
    q->P = reserve((size_t)(PADDED(q->parameters) * q->stride) * sizeof(SMALL));
    for (int j = 0; j < q->parameters; j++) q->P[j * q->stride + j] = q->D[j] = 1;
}

/* FNV-1a. */
static void add_to_hash(uint64_t *hash, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        *hash = (*hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
}
#define HASH(pointer, count) add_to_hash(&hash, pointer, sizeof(*(pointer)) * (size_t)(count))

static uint64_t hash_scores(const Scores *s) {
    uint64_t hash = UINT64_C(14695981039346656037);
    int64_t columns = s->heads * s->candidates;
    HASH(&s->rows, 1);
    HASH(&s->unfitted, 1);
    HASH(s->surprise, s->candidates);
    HASH(s->scale, columns);
    HASH(s->recent_scale, columns);
    HASH(s->neighbours, columns);
    HASH(s->last, columns);
    return hash;
}

/* Of all numbers that a row may change. */
static uint64_t hash_learner(const Basis *b) {
    uint64_t hash = hash_scores(&b->scores);
    int64_t e = b->scores.candidates;
    HASH(&b->stored, 6); /* stored, rank, seen, compactions, draws, has_history */
    HASH(&b->parameter_bound, 5);
    HASH(b->tail_level, e);
    HASH(b->tail_dropped, e);
    HASH(b->rows, b->stored * b->stride);
    HASH(b->base, b->columns * b->stride);
    HASH(b->sigma, b->vector);
    for (int64_t i = 0; i < b->rank; i++) HASH(b->W + i * b->width, b->stored);
    for (int64_t i = 0; i < b->columns; i++) HASH(b->shift + i * b->width, b->stored);
    for (int64_t i = 0; i < b->stored; i++) {
        HASH(b->M + i * b->width, b->stored);
        if (b->has_history) HASH(b->history + i * b->width, b->stored);
    }
    if (has_roots(b))
        for (int64_t f = 0; f < 1 + (b->is_noisy ? e : 0); f++)
            for (int64_t i = 0; i < b->rank; i++) HASH(root_of(b, f) + i * b->vector, b->rank);
    return hash;
}

static uint64_t hash_filter(const Dense *q) {
    uint64_t hash = hash_scores(&q->scores);
    HASH(&q->seen, 1);
    HASH(&q->form, 1);
    HASH(&q->parameter_bound, 3);
    HASH(q->D, q->parameters);
    HASH(q->w, q->scores.heads * q->stride);
    HASH(q->P, PADDED(q->parameters) * q->stride);
    return hash;
}
