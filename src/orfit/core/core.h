/* The numbers of a learner, and the functions by which a caller uses them.
 *
 * A caller fills in the sizes and settings of a `Basis`, calls `size_basis`, reserves as many bytes as
 * `place_basis` and `place_scratch` return for no block, and calls them again with the blocks. From
 * then on a row allocates nothing. A row is applied fully or, if its return code is not DONE, not at
 * all. The same holds for a `Dense` and `place_dense`. Sizes are at most 2^31 - 1024.
 *
 * All fields have eight bytes on a host, so that other languages can describe the structs. */
#ifndef ORFIT_CORE_H
#define ORFIT_CORE_H
#include "lanes.h"

/* What a row returns. */
enum { DONE, BAD_GRADIENT, BAD_PREDICTION, TOO_LARGE, NEEDS_ROOM, NEEDS_LIMIT };
/* Which directions a basis keeps. */
enum { PRINCIPAL, LATEST, RANDOM, UNLIMITED, NOTHING };
/* How a dense P is stored: P = U D U', or P itself. */
enum { ROOT, PLAIN };
/* The covariance Q of a drift: none, q I, a diagonal, or a matrix. */
enum { NO_DRIFT, NUMBER, DIAGONAL, MATRIX };

/* One datapoint. */
typedef struct {
    const REAL *gradient; /* p numbers, or p - 1 if the model has a bias */
    const SMALL *offset;  /* of each head: f(x; w) less gradient . w; NULL for zero */
    const SMALL *label;   /* of each head */
    SMALL weight_root;    /* sqrt(v) of a row of weight v */
} Row;

/* What a row did. Arrays have a number for each candidate, or for each candidate and head. */
typedef struct {
    SMALL novelty, gradient_length;
    SMALL *prediction, *residual, *left; /* candidates x heads; left: of the residual, by the step */
    SMALL *variance, *length;            /* candidates: S = g'Pg + R, and |change of w| */
} Result;

/* Rows first to count - 1 of many: gradients begin `stride` numbers apart; offsets and weight_roots
 * may be NULL. A call learns rows to stop - 1, and those after them that it has read already. */
typedef struct {
    int64_t first, count, stride;
    const REAL *gradients;
    const SMALL *offsets, *labels, *weight_roots; /* rows x heads; rows x heads; rows */
    int64_t stop;
} Rows;

/* What the candidate that predicts did at each of many rows. */
typedef struct {
    SMALL *prediction, *residual, *left;       /* rows x heads */
    SMALL *variance, *length, *novelty, *rank; /* rows */
} Results;

/* Running means of squared innovations u^2 = r^2 / S. */
typedef struct {
    int64_t heads, candidates, rows;
    SMALL unfitted; /* the largest residual of a row with S = 0 */
    SMALL *scale, *recent_scale, *neighbours, *last; /* candidates x heads */
    SMALL *surprise;                                 /* candidates: the recent mean of S / R */
} Scores;

/* U = (W Q)', w = base + shift Q, M = Q Q', and what was seen along U. */
typedef struct {
    /* sizes */
    int64_t parameters, bias, kind, most, capacity, columns; /* columns of w: candidates x heads */
    int64_t stride, width, vector; /* of rows and base; of W, M, shift, history; of directions */
    /* settings */
    int64_t linear, chosen, has_tail, is_noisy, seed; /* is_noisy: whether R > 0 */
    SMALL forgetting, drift, limit;
    SMALL *noise, *tailed; /* candidates; tailed: 1 or 0 */
    /* numbers */
    int64_t stored, rank, seen, compactions, draws, has_history;
    int64_t stored_as_given; /* how many gradients before the next were stored as they are */
    SMALL parameter_bound, prior_variance, dropped_energy, tail_rows, tail_dropping;
    SMALL *tail_level, *tail_dropped; /* candidates */
    REAL *rows, *base;                /* capacity x stride; columns x stride */
    SMALL *W, *next_W;                /* (most + 1) x width */
    SMALL *M, *history;               /* capacity x width */
    SMALL *shift;                     /* columns x width */
    SMALL *sigma;                     /* vector: singular values, falling */
    SMALL *roots;                     /* (1 + candidates with noise) x (most + 1) x vector, triangular */
    Scores scores;
    Result result;
    /* scratch */
    SMALL *raw, *raw_again, *base_products; /* products of a gradient with rows and base */
    SMALL *ahead;                           /* of the next eight gradients */
    SMALL *a, *Ma, *rest, *coordinates, *more;     /* of a projection */
    SMALL *aged, *floors;                          /* vector; candidates */
    SMALL *directions, *gains, *innovations;       /* candidates x vector; columns; columns */
    SMALL *variances;                              /* candidates: of a row that counts once */
    SMALL *vectors, *spare, *spectrum_work;        /* of the spectrum */
    REAL *panel;
    int64_t *order;
} Basis;

/* A gradient in the slot behind the stored rows, x = g / unit, and its parts along U and beyond. */
typedef struct {
    SMALL unit;         /* a power of two; 1 unless squares might overflow */
    SMALL length;       /* |x| */
    SMALL square;       /* of what is stored: x, or what is left of it */
    const SMALL *raw;   /* products of what is stored with the rows */
    SMALL new_length;   /* of the part of x beyond U; 0 if that is rounding */
    int read_again, is_off; /* whether the rest was formed; whether W needs a correction */
    int base_moved;         /* whether `base` changed when this row was learned */
} Projection;

/* P (p x p) and w. Row j of `P` is column j of U (ROOT) or row j of P (PLAIN), see covariance.c.
 * Matrices have PADDED(p) rows of `stride` numbers. Without `moves` the form is ROOT. */
typedef struct {
    /* sizes */
    int64_t parameters, bias, stride;
    /* settings */
    int64_t linear, moves, drift_kind, drift_rank; /* moves: whether P drifts, or is moved, ever */
    SMALL noise, forgetting, limit, prior_width, cutoff; /* cutoff: a share of g that is rounding */
    const SMALL *drift;      /* Q: 1, p or p x stride numbers */
    const SMALL *drift_root; /* columns of S, Q = S S', if Q is a matrix: drift_rank x stride */
    int64_t makes_steps;     /* whether each row makes a step in time by A before it */
    SMALL number_A;
    const SMALL *columns_of_A; /* p x stride; NULL: A is a number */
    /* numbers */
    int64_t rank, chosen, seen, form, wound_up; /* rank: p; chosen: 0, the only candidate */
    int64_t time_updated; /* whether the next row makes no step in time */
    SMALL parameter_bound, amplification; /* of rounding, by rows without noise */
    SMALL width;                          /* at least sqrt(tr P / p) */
    SMALL *P;                             /* PADDED(p) x stride: the caller's */
    SMALL *D;                             /* PADDED(p) */
    REAL *w;                              /* heads x stride */
    Scores scores;
    Result result;
    /* scratch */
    SMALL *innovations, *variances;       /* heads; 1 */
    SMALL *gradient, *f, *v, *before, *after, *y, *z, *saved_D; /* PADDED(p) */
    SMALL *spare, *plain;                 /* PADDED(p) x stride, if P moves */
    SMALL *P_before, *D_before;           /* before a step in time */
    REAL *w_before, *next_w;
} Dense;

/* The functions of the core for one pair of number types and one target: what an object file
 * exports. */
struct Core {
    const char *target; /* TARGET_NAME */
    int64_t basis_bytes, dense_bytes; /* sizes of the structs */
    void (*size_basis)(Basis *);
    int64_t (*place_basis)(Basis *, char *);
    int64_t (*place_scratch)(Basis *, char *);
    int (*learn_row)(Basis *, const Row *);
    int (*predict_row)(Basis *, const Row *);
    int64_t (*learn_rows)(Basis *, const Rows *, const Results *, int64_t *);
    void (*copy_parameters)(const Basis *, REAL *);
    int64_t (*place_dense)(Dense *, char *);
    int (*learn_dense_row)(Dense *, const Row *);
    int (*predict_dense_row)(Dense *, const Row *);
    int (*learn_dense_row_later)(Dense *, const REAL *, const Row *);
    int64_t (*learn_dense_rows)(Dense *, const Rows *, const Results *, int64_t *);
    int (*advance_dense)(Dense *, const REAL *, const SMALL *);
    void (*copy_dense_parameters)(const Dense *, REAL *);
    void (*update_scores)(Scores *, const SMALL *, const SMALL *, const SMALL *);
    void (*extend_tail)(int, const SMALL *, SMALL *, SMALL *, SMALL, SMALL, const SMALL *, int, SMALL,
                        SMALL);
    int64_t (*draw)(int64_t, int64_t, int64_t);
};

#endif
