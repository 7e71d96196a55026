/* Singular values and left singular vectors of [diag(sigma), z]: the spectrum after a new column.
 *
 * Their squares are the eigenvalues of diag(sigma^2) + z z', the roots of the secular function
 *     f(lambda) = 1 + sum_j z_j^2 / (sigma_j^2 - lambda).
 * One root lies above each pole sigma_j^2. Each lane of a vector finds one root, without regard to
 * the other lanes. A root is stored as its nearer pole, the `origin`, and the distance t from it:
 *     lambda = origin^2 + side t,      side = 1 above the origin, -1 below it.
 * So sigma_j^2 - lambda = (sigma_j - origin)(sigma_j + origin) - side t has a small relative error.
 * The iteration is Gragg's: a constant and a term for each of the two nearest poles interpolate f,
 * f' and f'' (Borges, Gragg 1993). It converges cubically. All sums are in units of t, so that
 * nothing overflows. The vectors belong to a z that is recomputed from the roots (Gu, Eisenstat
 * 1994), which makes them orthogonal even where roots are inaccurate.
 *
 * Accuracy: values and vectors are those of a matrix [diag(sigma), z] whose elements have relative
 * errors of about n EPS. Such errors change each singular value, however small, by a relative error
 * of that size (Demmel, Gragg 1993). Numbers below 2^-279 (float: 2^-28) times the largest one
 * count as zero. tests/test_core_spectrum.py states the bounds that are tested. */
#include "lanes.h"

/* Input is multiplied by a power of two, so that its largest number lies between LARGEST / 2 and
 * LARGEST = 2^LARGEST_EXPONENT. Numbers below TINIEST become 0. The extreme products of two
 * differences, LARGEST^4 and TINIEST^6 EPS^2 / LARGEST^2, are then in the range of SMALL. */
#define LARGEST_EXPONENT (IS_FLOAT ? 24 : 200)
#define SCALING_EXPONENT (IS_FLOAT ? 126 : 1022) /* of the power of two */
#define TINIEST ((SMALL)(IS_FLOAT ? 0x1p-5 : 0x1p-80))
#define LAST_STEP ((SMALL)(IS_FLOAT ? 3e-3 : 4e-6)) /* relative; its third power is below EPS / 3 */
#define FRACTION(a, b) ((SMALL)(a) / (SMALL)(b))
#ifndef MOST_PASSES /* tests lower it; 3 or 4 are usual, and 19 are the most that were seen */
#define MOST_PASSES 100
#endif

enum { TOGETHER = 2 }; /* vectors of roots that are iterated together */

/* Each array has eight numbers before it, PADDED(n) in it, and begins at a multiple of 64 bytes. */
#define SPECTRUM_ARRAYS 11
#define SPECTRUM_WORK(n) (SPECTRUM_ARRAYS * (PADDED(n) + LANES))
#define SPECTRUM_SPARE(n, stride) ((n) * (stride))
#define SPECTRUM_ORDER(n) (4 * (n))
#define SPECTRUM_STRIDE(n) PADDED(n)

/* f with `count` poles, and its roots. */
typedef struct {
    int count;
    SMALL *pole, *z, *weight;  /* sigma_j, falling; z_j; z_j^2; pole[-1] and weight[-1] are 0 */
    SMALL total, second;       /* sum of weights; from the first pole to the next one (squares) */
    SMALL *origin, *distance;  /* of each root */
    SMALL *offset, *value;     /* side t; sqrt(lambda) */
    SMALL *table;              /* side (sigma_j^2 - origin_i^2) in row j and column i */
    ptrdiff_t stride;
} Secular;

/* What the iteration changes: t between two bounds. */
typedef struct {
    Lanes origin, side, distance, inner, outer, inverse_gap;
    Mask done;
} Root;

/* With d_j = side (sigma_j^2 - lambda): sums of z_j^2 t/d_j, z_j^2 (t/d_j)^2, z_j^2 (t/d_j)^3, that
 * is of f, f', f'' / 2 times a power of t; and of the absolute values of the first ones. */
typedef struct {
    Lanes value, slope, curvature, size;
} Sums;

INLINE Lanes difference_of_squares(Lanes a, Lanes b) { return (a - b) * (a + b); }

/* The root of c x^2 - a x + b = 0 that is (a - sqrt(a^2 - 4 b c)) / (2 c). */
INLINE Lanes solve_quadratic(Lanes a, Lanes b, Lanes c) {
    Lanes square = a * a - 4 * b * c;
    Lanes root = square_root(pick(less(splat(0), square), square, splat(0)));
    Mask positive = less(splat(0), a);
    return pick(positive, 2 * b, a - root) / pick(positive, a + root, 2 * c);
}

/* Add the terms of two poles at a cost of one division: t/a = b (t / (a b)). */
INLINE void add_two_terms(Sums *s, Lanes t, Lanes a, Lanes b, Lanes weight_a, Lanes weight_b) {
    Lanes both = t / (a * b), ratio_a = both * b, ratio_b = both * a;
    Lanes term_a = weight_a * ratio_a, term_b = weight_b * ratio_b;
    s->value = s->value + (term_a + term_b);
    s->size = s->size + (magnitude(term_a) + magnitude(term_b));
    term_a = term_a * ratio_a, term_b = term_b * ratio_b;
    s->slope = s->slope + (term_a + term_b);
    s->curvature = s->curvature + (term_a * ratio_a + term_b * ratio_b);
}

/* side (sigma_j^2 - lambda). What does not depend on t is stored in the table by the first pass. */
INLINE Lanes pole_from_root(int is_first_pass, const Secular *q, int j, int i, const Root *r) {
    SMALL *place = q->table + j * q->stride + i;
    if (is_first_pass)
        store(place, r->side * difference_of_squares(splat(q->pole[j]), r->origin));
    return load(place) - r->distance;
}

INLINE void evaluate(int vectors, int is_first_pass, const Secular *q, int i, const Root *root,
                     Sums *sums) {
    UNROLL for (int g = 0; g < vectors; g++) {
        sums[g].value = root[g].side * root[g].distance;
        sums[g].size = root[g].distance;
        sums[g].slope = sums[g].curvature = splat(0);
    }
    for (int j = 0; j < q->count; j += 2) {
        const int is_pair = j + 1 < q->count;
        const SMALL weight_b = is_pair ? q->weight[j + 1] : 0;
        UNROLL for (int g = 0; g < vectors; g++) {
            Lanes a = pole_from_root(is_first_pass, q, j, i + g * WIDTH, &root[g]), b = splat(1);
            if (is_pair) b = pole_from_root(is_first_pass, q, j + 1, i + g * WIDTH, &root[g]);
            add_two_terms(&sums[g], root[g].distance, a, b, splat(q->weight[j]), splat(weight_b));
        }
    }
}

/* f at pole^2 + t. */
INLINE void evaluate_once(int vectors, const Secular *q, const Lanes *pole, const Lanes *t,
                          Lanes *f) {
    UNROLL for (int g = 0; g < vectors; g++) f[g] = splat(1);
    for (int j = 0; j < q->count; j += 2) {
        const int is_pair = j + 1 < q->count;
        const SMALL weight_b = is_pair ? q->weight[j + 1] : 0;
        UNROLL for (int g = 0; g < vectors; g++) {
            Lanes a = difference_of_squares(splat(q->pole[j]), pole[g]) - t[g], b = splat(1);
            if (is_pair) b = difference_of_squares(splat(q->pole[j + 1]), pole[g]) - t[g];
            f[g] = f[g] + (q->weight[j] * b + weight_b * a) / (a * b);
        }
    }
}

/* The sign of f in the middle between two poles decides which of them is nearer to the root. A
 * first distance: the other poles' part of f is taken as constant. */
INLINE void start_roots(int vectors, const Secular *q, int i, Root *root) {
    Lanes low[TOGETHER], high[TOGETHER], gap[TOGETHER], middle[TOGETHER], f[TOGETHER];
    UNROLL for (int g = 0; g < vectors; g++) {
        Mask is_first = equal(count_from(i + g * WIDTH), splat(0));
        low[g] = load(q->pole + i + g * WIDTH);
        high[g] = load_unaligned(q->pole + i + g * WIDTH - 1);
        gap[g] = pick(is_first, splat(q->total), difference_of_squares(high[g], low[g]));
        middle[g] = gap[g] * FRACTION(1, 2);
    }
    evaluate_once(vectors, q, low, middle, f);
    UNROLL for (int g = 0; g < vectors; g++) {
        Lanes index = count_from(i + g * WIDTH);
        Mask is_first = equal(index, splat(0)), is_positive = less(splat(0), f[g]);
        Mask is_low = is_positive | is_first, is_far = ~is_positive & is_first;
        Lanes weight_low = load(q->weight + i + g * WIDTH);
        Lanes weight_high = load_unaligned(q->weight + i + g * WIDTH - 1);
        Lanes side = pick(is_low, splat(1), splat(-1));
        Lanes rest = side * (f[g] + (weight_low - weight_high) / middle[g]);
        Lanes own = pick(is_low, weight_low, weight_high);
        Lanes guess = solve_quadratic(rest * gap[g] + weight_low + weight_high, own * gap[g], rest);
        Lanes inner = pick(is_far, gap[g] * FRACTION(3, 8), splat(0));
        Lanes outer = gap[g] * pick(is_far, splat(2), splat(FRACTION(5, 8)));
        Mask is_inside = less(inner, guess) & less(guess, outer);
        root[g].origin = pick(is_low, low[g], high[g]);
        root[g].side = side;
        root[g].inner = inner, root[g].outer = outer;
        root[g].distance = pick(is_inside, guess, (inner + outer) * FRACTION(1, 2));
        root[g].inverse_gap = 1 / pick(is_first, splat(-q->second), gap[g]);
        root[g].done = ~less(index, splat((SMALL)q->count));
    }
}

/* The geometric mean of the bounds, of which the inner one may be 0. */
INLINE Lanes bisect(const Root *r) {
    Lanes least = EPS * r->outer;
    return square_root(pick(less(least, r->inner), r->inner, least) * r->outer);
}

/* One step of Gragg's iteration. In units of t, the origin is at -1 and the other pole at
 * 1 / other - 1; the zero of the interpolating function solves a quadratic equation. */
INLINE void improve(Root *r, const Sums *s) {
    Lanes t = r->distance, f = s->value, other = t * r->inverse_gap;
    Mask is_farther = less(f, splat(0)); /* the root is farther from its origin than t */
    r->done |= at_most(magnitude(f), 4 * EPS * s->size);
    r->inner = pick(is_farther, t, r->inner);
    r->outer = pick(is_farther, r->outer, t);
    Lanes u = 1 - other, v = u - other;
    Lanes step = solve_quadratic(v * f + u * s->slope, -(u * f),
                                 other * f - v * s->slope - u * s->curvature);
    Lanes next = t + t * step;
    Mask is_inside = less(r->inner, next) & less(next, r->outer);
    Mask is_last = is_inside & at_most(magnitude(step), splat(LAST_STEP));
    if (any(~(is_inside | r->done))) next = pick(is_inside, next, bisect(r));
    r->done |= ~(less(r->inner, next) & less(next, r->outer));
    r->distance = pick(r->done, t, next);
    r->done |= is_last;
}

/* Roots i to i + vectors WIDTH - 1. */
INLINE void find_some_roots(int vectors, const Secular *q, int i) {
    Root root[TOGETHER];
    Sums sums[TOGETHER];
    start_roots(vectors, q, i, root);
    evaluate(vectors, 1, q, i, root, sums);
    for (int pass = 0; pass < MOST_PASSES; pass++) {
        UNROLL for (int g = 0; g < vectors; g++) improve(&root[g], &sums[g]);
        Mask done = root[0].done;
        UNROLL for (int g = 1; g < vectors; g++) done &= root[g].done;
        if (!any(~done)) break;
        evaluate(vectors, 0, q, i, root, sums);
    }
    UNROLL for (int g = 0; g < vectors; g++) {
        int first = i + g * WIDTH;
        Lanes origin = root[g].origin, offset = root[g].side * root[g].distance;
        store(q->origin + first, origin);
        store(q->distance + first, root[g].distance);
        store(q->offset + first, offset);
        store(q->value + first, square_root(origin * origin + offset));
    }
}

static void find_roots(const Secular *q) {
    int i = 0;
    for (; i + WIDTH < q->count; i += TOGETHER * WIDTH) find_some_roots(TOGETHER, q, i);
    if (i < q->count) find_some_roots(1, q, i);
}

/* (lambda_i - sigma_j^2) / (sigma_k^2 - sigma_j^2), where k is the pole above root i (i <= j) or
 * below it, so that the ratio is at most 1. `above` goes from pole i - 1 to pole i. */
INLINE void multiply_by_ratio(const Secular *q, int i, Lanes pole, Lanes j, Lanes *above,
                              Lanes *numerator, Lanes *denominator) {
    Lanes below = difference_of_squares(pole, splat(q->pole[i]));
    Lanes root = difference_of_squares(pole, splat(q->origin[i])) - q->offset[i];
    *numerator = *numerator * root;
    *denominator = *denominator * pick(at_most(splat((SMALL)i), j), *above, below);
    *above = below;
}

/* The z of which the roots are exact:
 *     z_j^2 = prod_i (lambda_i - sigma_j^2) / prod_(i != j) (sigma_i^2 - sigma_j^2). */
static void recompute_z(const Secular *q) {
    for (int j = 0; j < q->count; j += WIDTH) {
        Lanes pole = load(q->pole + j), index = count_from(j), z = load(q->z + j);
        Lanes above = difference_of_squares(pole, splat(q->pole[0])), square = q->offset[0] - above;
        for (int i = 1; i < q->count; i += 2) {
            Lanes numerator = splat(1), denominator = splat(1);
            multiply_by_ratio(q, i, pole, index, &above, &numerator, &denominator);
            if (i + 1 < q->count)
                multiply_by_ratio(q, i + 1, pole, index, &above, &numerator, &denominator);
            square = square * (numerator / denominator);
        }
        Lanes root = square_root(square);
        store(q->z + j, pick(less(z, splat(0)), -root, root));
    }
}

/* Replace column i of the table by the numbers z_j t / d_j, of which vector i consists, and return
 * their sum of squares. */
INLINE Lanes divide_z(const Secular *q, int i) {
    SMALL *place = q->table + i;
    Lanes t = load(q->distance + i), square = splat(0);
    for (int j = 0; j < q->count; j += 2, place += 2 * q->stride) {
        const int is_pair = j + 1 < q->count;
        Lanes a = load(place) - t, b = splat(1);
        if (is_pair) b = load(place + q->stride) - t;
        Lanes both = t / (a * b), part_a = b * both * q->z[j];
        square = square + part_a * part_a;
        store(place, part_a);
        if (is_pair) {
            Lanes part_b = a * both * q->z[j + 1];
            square = square + part_b * part_b;
            store(place + q->stride, part_b);
        }
    }
    return square;
}

/* The first `columns` vectors replace the table. Columns from there to PADDED(columns) become 0. */
static void form_vectors(const Secular *q, int columns) {
    for (int i = 0; i < PADDED(columns); i += WIDTH) {
        Mask is_column = less(count_from(i), splat((SMALL)columns));
        Lanes inverse = splat(0);
        if (i < columns) inverse = 1 / square_root(divide_z(q, i));
        SMALL *place = q->table + i;
        for (int j = 0; j < q->count; j++, place += q->stride)
            store(place, pick(is_column, load(place) * inverse, splat(0)));
    }
}

/* Which poles have no root of their own, and the rotations that removed equal poles. */
typedef struct {
    int kept, fixed, ties;
    int *kept_index, *fixed_index, *from, *to;
    SMALL *cosine, *sine;
} Deflation;

/* The power of two by which the largest number becomes about 2^LARGEST_EXPONENT. */
static int scaling_exponent(int n, const SMALL *sigma, const SMALL *z) {
    SMALL largest = sigma[0];
    int exponent;
    for (int j = 0; j < n; j++) largest = absolute(z[j]) > largest ? absolute(z[j]) : largest;
    frexp(largest, &exponent);
    exponent = LARGEST_EXPONENT - exponent;
    return exponent < SCALING_EXPONENT ? exponent : SCALING_EXPONENT;
}

/* scaled = factor numbers, followed by zeros; numbers below TINIEST become 0. */
static void scale_numbers(int n, const SMALL *numbers, SMALL factor, SMALL *scaled) {
    for (int j = 0; j < n; j++) {
        SMALL x = numbers[j] * factor;
        scaled[j] = absolute(x) < TINIEST ? 0 : x;
    }
    for (int j = n; j < PADDED(n); j++) scaled[j] = 0;
}

/* With such a z_j = 0, singular values change by a factor of up to 1 +- EPS / 2. */
INLINE int is_negligible(SMALL z, SMALL sigma) { return absolute(z) <= EPS * sigma; }

static int needs_deflation(int n, const SMALL *sigma, const SMALL *z) {
    int needs = is_negligible(z[n - 1], sigma[n - 1]);
    for (int j = 0; j + 1 < n; j++)
        needs |= is_negligible(z[j], sigma[j]) | (sigma[j] <= sigma[j + 1]);
    return needs;
}

/* A pole with z_j = 0 stays as it is. Of two equal poles, one gets z_j = 0 by a rotation. */
static void deflate(int n, const SMALL *sigma, SMALL *z, Deflation *d) {
    d->kept = d->fixed = d->ties = 0;
    for (int j = 0; j < n; j++) {
        int last = d->kept ? d->kept_index[d->kept - 1] : -1;
        if (is_negligible(z[j], sigma[j])) {
            d->fixed_index[d->fixed++] = j;
        } else if (last >= 0 && sigma[last] <= sigma[j]) {
            SMALL length = (SMALL)sqrt(z[last] * z[last] + z[j] * z[j]);
            d->cosine[d->ties] = z[last] / length;
            d->sine[d->ties] = z[j] / length;
            d->from[d->ties] = last;
            d->to[d->ties++] = j;
            z[last] = length;
            d->fixed_index[d->fixed++] = j;
        } else {
            d->kept_index[d->kept++] = j;
        }
    }
}

/* The numbers of the poles that are kept, followed by zeros. */
static SMALL *gather(const Deflation *d, const SMALL *numbers, SMALL *gathered) {
    for (int j = 0; j < d->kept; j++) gathered[j] = numbers[d->kept_index[j]];
    for (int j = d->kept; j < PADDED(d->kept); j++) gathered[j] = 0;
    return gathered;
}

/* Merge the roots of q with the fixed poles, and undo the rotations. */
static void merge_deflated(int n, const SMALL *sigma, const Secular *q, const Deflation *d,
                           int columns, SMALL *values, SMALL *vectors, ptrdiff_t stride) {
    int root = 0, fixed = 0;
    for (int j = 0; j < n; j++) memset(vectors + j * stride, 0, sizeof(SMALL) * PADDED(columns));
    for (int i = 0; i < columns; i++) {
        int pole = fixed < d->fixed ? d->fixed_index[fixed] : -1;
        if (pole < 0 || (root < q->count && q->value[root] >= sigma[pole])) {
            values[i] = q->value[root];
            for (int j = 0; j < q->count; j++)
                vectors[d->kept_index[j] * stride + i] = q->table[j * q->stride + root];
            root++;
        } else {
            values[i] = sigma[pole];
            vectors[pole * stride + i] = 1;
            fixed++;
        }
    }
    for (int tie = d->ties - 1; tie >= 0; tie--) {
        SMALL *x = vectors + d->from[tie] * stride, *y = vectors + d->to[tie] * stride;
        SMALL c = d->cosine[tie], s = d->sine[tie];
        for (int i = 0; i < columns; i++) {
            SMALL a = x[i], b = y[i];
            x[i] = c * a - s * b;
            y[i] = s * a + c * b;
        }
    }
}

/* The roots and the first `columns` vectors of q, whose poles and z are given. */
static void solve_secular(Secular *q, int columns) {
    q->pole[-1] = q->weight[-1] = q->total = 0;
    for (int j = 0; j < PADDED(q->count); j++) q->weight[j] = q->z[j] * q->z[j];
    for (int j = 0; j < q->count; j++) q->total += q->weight[j];
    q->second = q->total;
    if (q->count > 1) {
        SMALL gap = (q->pole[0] - q->pole[1]) * (q->pole[0] + q->pole[1]);
        SMALL least = q->total * FRACTION(1, 1024); /* bounds t / second */
        q->second = gap < least ? least : gap;
    }
    find_roots(q);
    recompute_z(q);
    form_vectors(q, columns);
}

/* The `columns` <= n largest singular values of [diag(sigma), z] (n x (n + 1)), falling, and their
 * left singular vectors: vectors[j * stride + i] is part j of vector i.
 *
 * sigma: n numbers >= 0, falling; ties and zeros are allowed. z: any n finite numbers. No singular
 * value may overflow. If the largest number is below 2^-820 (float: 2^-100), fewer small values
 * than stated above are distinguished from 0. Columns of `vectors` from `columns` to PADDED(columns)
 * become 0. `values` may be `sigma`; other arrays must not overlap. Scratch: work, spare and order
 * have SPECTRUM_WORK(n), SPECTRUM_SPARE(n, stride) and SPECTRUM_ORDER(n) elements;
 * stride >= SPECTRUM_STRIDE(n). */
API void decompose_rank_one(int n, const SMALL *sigma, const SMALL *z, int columns, SMALL *values,
                            SMALL *vectors, ptrdiff_t stride, SMALL *work, SMALL *spare,
                            int *order) {
    SMALL *array[SPECTRUM_ARRAYS];
    for (int a = 0; a < SPECTRUM_ARRAYS; a++) array[a] = work + a * (PADDED(n) + LANES) + LANES;
    Secular q = {.count = n, .pole = array[0], .z = array[1], .weight = array[2],
                 .origin = array[3], .distance = array[4], .offset = array[5], .value = array[6],
                 .table = vectors, .stride = stride};
    Deflation d = {.kept_index = order, .fixed_index = order + n, .from = order + 2 * n,
                   .to = order + 3 * n, .cosine = array[7], .sine = array[8]};
    int exponent = scaling_exponent(n, sigma, z);
    SMALL unit = (SMALL)ldexp(1, -exponent);
    scale_numbers(n, sigma, (SMALL)ldexp(1, exponent), q.pole);
    scale_numbers(n, z, (SMALL)ldexp(1, exponent), q.z);
    if (!needs_deflation(n, q.pole, q.z)) {
        solve_secular(&q, columns);
        for (int i = 0; i < columns; i++) values[i] = q.value[i] * unit;
        return;
    }
    const SMALL *scaled = q.pole;
    deflate(n, scaled, q.z, &d);
    q.count = d.kept;
    q.pole = gather(&d, q.pole, array[9]);
    q.z = gather(&d, q.z, array[10]);
    q.table = spare;
    if (q.count) solve_secular(&q, q.count < columns ? q.count : columns);
    merge_deflated(n, scaled, &q, &d, columns, values, vectors, stride);
    for (int i = 0; i < columns; i++) values[i] = values[i] * unit;
}
