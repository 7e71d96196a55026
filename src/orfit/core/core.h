/* The numbers of a learner, and the functions by which a caller uses them.
 *
 * A caller fills in the sizes and settings of a `Basis` or a `Dense`, reserves as many bytes as
 * `basis_bytes` or `dense_bytes` says, and calls `place_basis` or `place_dense`. From then on a row
 * allocates nothing. A row is applied fully or, if its return code is not DONE, not at all.
 *
 * All fields have eight bytes on a host, so that other languages can describe the structs. */
#ifndef ORFIT_CORE_H
#define ORFIT_CORE_H
#include "lanes.h"

enum { DONE, NOT_FINITE, TOO_LARGE, NEEDS_ROOM, NEEDS_LIMIT }; /* what a row returns */
enum { PRINCIPAL, LATEST, RANDOM, UNLIMITED, NOTHING };        /* which directions are kept */
enum { ROOT, PLAIN };                                          /* how a dense P is kept */

/* One datapoint. */
typedef struct {
    const REAL *gradient;  /* p numbers, or p - 1 if the model has a bias */
    const SMALL *offset;   /* of each head: f(x; w) less gradient . w; NULL for zero */
    const SMALL *label;    /* of each head */
    SMALL weight_root;     /* sqrt(v) of a row of weight v */
} Row;

/* What a row did: pointers to the numbers of each candidate, or of each candidate and head. */
typedef struct {
    SMALL novelty, length_of_gradient;
    SMALL *prediction, *residual, *left; /* candidates x heads */
    SMALL *variance, *length;            /* candidates: S, and |change of w| */
} Result;

/* Running means of squared innovations r^2 / S, for each candidate and head. */
typedef struct {
    int64_t heads, candidates, rows;
    SMALL unfitted;                              /* the largest residual of a row with S = 0 */
    SMALL *scale, *recent_scale, *neighbours, *last; /* candidates x heads */
    SMALL *surprise;                             /* candidates: the recent mean of S / R */
} Scores;

/* m directions U = (W Q)', w = base + shift Q, M = Q Q'. */
typedef struct {
    /* sizes */
    int64_t parameters, bias, kind, most, capacity;
    int64_t stride, width, vector; /* of rows and base; of W, M and shift; of vectors of directions */
    /* settings */
    int64_t linear, chosen, has_tail, seed;
    SMALL forgetting, drift, limit;
    SMALL *noise, *tailed; /* candidates; tailed: 1 or 0 */
    /* numbers */
    int64_t stored, rank, seen, compactions, draws, has_history;
    SMALL parameter_bound, prior_variance, dropped_energy, tail_rows, tail_dropping;
    SMALL *tail_level, *tail_dropped; /* candidates */
    REAL *rows, *base;                /* capacity x stride, columns of w x stride */
    SMALL *W, *next_W, *M, *shift;    /* (most + 1) x width twice, capacity x width, columns x width */
    SMALL *history;                   /* capacity x width, for exact interpolation */
    SMALL *sigma;                     /* singular values, falling */
    SMALL *roots;                     /* (candidates + 1) x (most + 1) x vector, for other kinds */
    Scores scores;
    Result result;
    SMALL *work;
} Basis;

/* The functions of the core for one pair of number types and one target: what an object file
 * exports. */
struct Core {
    const char *target; /* TARGET_NAME */
    int64_t (*size_of_basis)(void);
};

#endif
