/* The frame: U = (W Q)', w = base + shift Q, M = Q Q'.
 *
 * The rows of Q are gradients. A new direction appends a row, a rotation of the directions multiplies
 * W, and a step of w changes `shift`. So a row reads Q once. When Q is full, the rows that are not
 * needed to span U are folded into the others.
 *
 * A projection removes U twice, the second time through M. If little of the gradient is new, the
 * rest x - Q'a is formed, replaces x as the row to store, and is projected again. */
#include "products.c"

#if defined(__STDC_VERSION__)
enum { PANEL = 96 }; /* columns that are compacted at a time */
#endif
#define REAL_EPSILON ((SMALL)(sizeof(REAL) == 8 ? 2.220446049250313e-16 : 1.1920929e-7))
/* Rows are stored with squares from the inverse of this to this, so that their coefficients are small. */
#define LARGEST_STORED ((SMALL)(sizeof(REAL) == 8 ? 1e40 : 1e8))
/* Longer gradients are refused, so that singular values stay finite for 2^40 rows. */
#define LONGEST_GRADIENT (LARGEST_NUMBER * (SMALL)0x1p-20)
/* The error of U'U = I that is tolerated. */
#define ORTHONORMAL ((SMALL)(sizeof(REAL) == 8 ? 2e-12 : 3e-5))
/* A direction that is known by its coefficients alone has a length of 1 within this many eps / 2: the
 * sum of the squares of what is added up, divided by the square of the rest. So the rest is formed if
 * it is shorter than about 1/30 of the gradient. With a limit of 95^2 errors of w were ten times as
 * large, and W was corrected so often that rows took twice as long at m = 100; with a limit of 16^2
 * errors were half as large, and rows took up to 1.6 times as long. */
#define MOST_AMPLIFIED ((SMALL)(sizeof(REAL) == 8 ? 900 : 250))
/* Beyond this ratio of subtracted parts to the gradient, later gradients multiply its rounding. */
#define LONGEST_SUBTRACTED ((SMALL)8)
/* A remainder up to this share of a gradient is rounding. */
#define CUTOFF (100 * REAL_EPSILON)
/* W is corrected if a projection shows a larger loss than these. */
#define MEASURABLE_LOSS ((SMALL)0.1)
#define ROUNDING_LOSS ((SMALL)16)

/* Copy the gradient to a row behind the stored ones, divided by a power of two. */
static void copy_gradient(Basis *b, const Row *row, int64_t place, SMALL unit) {
    int given = (int)(b->parameters - b->bias);
    REAL *x = b->rows + place * b->stride;
    SMALL by = row->weight_root / unit;
    if (by == 1) memcpy(x, row->gradient, sizeof(REAL) * (size_t)given);
    else
        for (int j = 0; j < given; j++) x[j] = (REAL)((SMALL)row->gradient[j] * by);
    if (b->bias) x[given] = (REAL)by;
    for (int j = (int)b->parameters; j < b->stride; j++) x[j] = 0;
}

static Row row_of(const Rows *rows, int64_t i, int64_t heads) {
    Row row = {rows->gradients + i * rows->stride, rows->offsets ? rows->offsets + i * heads : NULL,
               rows->labels + i * heads, rows->weight_roots ? rows->weight_roots[i] : 1};
    return row;
}

static void read_gradient(Basis *b, Projection *x) {
    const REAL *g = b->rows + b->stored * b->stride;
    int p = (int)b->parameters, s = (int)b->stored;
    multiply_real(b->rows, b->stride, s + 1, p, g, b->raw);
    multiply_real(b->base, b->stride, (int)b->columns, p, g, b->base_products);
    x->square = b->raw[s];
    for (int j = s; j < PADDED(s + 1); j++) b->raw[j] = 0;
    x->raw = b->raw;
}

static int may_be_stored(SMALL square) {
    return square <= LARGEST_STORED && square >= 1 / LARGEST_STORED;
}

/* Store the gradient and compute its products; returns BAD_GRADIENT if it is not finite, or too long. */
static int load_gradient(Basis *b, const Row *row, Projection *x) {
    SMALL largest = 0;
    int exponent;
    x->unit = 1;
    copy_gradient(b, row, b->stored, 1);
    read_gradient(b, x);
    if (!may_be_stored(x->square)) {
        const REAL *g = b->rows + b->stored * b->stride;
        for (int j = 0; j < b->parameters; j++) {
            SMALL size = absolute((SMALL)g[j]);
            if (!(size <= LARGEST_NUMBER)) return BAD_GRADIENT;
            if (size > largest) largest = size;
        }
        if (largest > 0) {
            (void)frexp(largest, &exponent);
            if (exponent < -MOST_EXPONENT) exponent = -MOST_EXPONENT;
            if (exponent > MOST_EXPONENT) exponent = MOST_EXPONENT;
            x->unit = (SMALL)ldexp(1, exponent);
            copy_gradient(b, row, b->stored, x->unit);
            read_gradient(b, x);
        }
    }
    x->length = (SMALL)sqrt(x->square);
    return x->length * x->unit <= LONGEST_GRADIENT ? DONE : BAD_GRADIENT;
}

/* Store the next eight gradients, and compute all products by one read. */
static void load_ahead(Basis *b, const Rows *rows, int64_t first) {
    int64_t s = b->stored;
    for (int v = 0; v < VECTORS; v++) {
        Row row = row_of(rows, first + v, b->scores.heads);
        copy_gradient(b, &row, s + v, 1);
    }
    multiply_eight(b->rows, b->stride, (int)s + VECTORS, (int)b->parameters, b->rows + s * b->stride,
                   b->stride, b->ahead);
    multiply_eight(b->base, b->stride, (int)b->columns, (int)b->parameters,
                   b->rows + s * b->stride, b->stride, b->ahead + b->capacity * VECTORS);
}

/* Take the products of gradient v of those eight; returns 0 if they must be read again. */
static int take_ahead(Basis *b, int v, Projection *x) {
    int s = (int)b->stored;
    for (int j = 0; j < s; j++) b->raw[j] = b->ahead[j * VECTORS + v];
    for (int j = s; j < PADDED(s + 1); j++) b->raw[j] = 0;
    for (int j = 0; j < b->columns; j++)
        b->base_products[j] = b->ahead[(b->capacity + j) * VECTORS + v];
    x->raw = b->raw;
    x->square = b->ahead[s * VECTORS + v];
    x->length = (SMALL)sqrt(x->square);
    x->unit = 1;
    return may_be_stored(x->square);
}

/* Remove U from the stored gradient twice. Sets a, with U U'x = Q'a, and `into` = U'x; returns the
 * square of the rest. `parts` is the sum of the squared lengths of x and of what is subtracted. */
static SMALL project_twice(Basis *b, const SMALL *raw, SMALL square, SMALL *into, SMALL *parts,
                           SMALL *loss) {
    int k = (int)b->rank, s = (int)b->stored;
    ptrdiff_t width = b->width;
    SMALL *a = b->a, *Ma = b->Ma, *rest = b->rest, *d = b->more;
    multiply_small(b->W, width, k, s, raw, into);       /* c = W raw */
    combine_small(b->W, width, k, s, into, NULL, a);    /* a = W'c */
    combine_small(b->M, width, s, s, a, NULL, Ma);
    for (int j = 0; j < PADDED(s); j++) rest[j] = raw[j] - Ma[j];
    multiply_small(b->W, width, k, s, rest, d);         /* U' (x - U c) */
    combine_small(b->W, width, k, s, d, a, a);
    combine_small(b->M, width, s, s, a, NULL, Ma);
    *loss = 0;
    for (int i = 0; i < k; i++) {
        into[i] += d[i];
        *loss += d[i] * d[i];
    }
    *parts = square;
    for (int j = 0; j < s; j++) *parts += a[j] * a[j] * b->M[j * width + j];
    return square - 2 * multiply_vectors(a, raw, s) + multiply_vectors(a, Ma, s);
}

/* |x|, and its coefficients in the rows that made the directions: each carries its own rounding. */
static SMALL find_uncertainty(Basis *b, SMALL length) {
    int s = (int)b->stored;
    SMALL *v = b->rest, total = length * length;
    const SMALL *H = b->history;
    for (int j = 0; j < s; j++) v[j] = b->a[j] * (SMALL)sqrt(b->M[j * b->width + j]);
    for (int i = s - 1; i >= 0; i--) { /* H'v = a, H lower triangular */
        v[i] /= H[i * b->width + i];
        for (int j = 0; j < i; j++) v[j] -= H[i * b->width + j] * v[i];
        total += v[i] * v[i];
    }
    return (SMALL)sqrt(total);
}

/* Replace the stored gradient by its rest beyond U; the products of that are read. */
static void form_rest(Basis *b, Projection *x) {
    int s = (int)b->stored, p = (int)b->parameters;
    REAL *g = b->rows + b->stored * b->stride;
    for (int j = 0; j < s; j++) b->rest[j] = -b->a[j];
    combine_real(b->rows, b->stride, s, p, b->rest, g, g);
    multiply_real(b->rows, b->stride, s + 1, p, g, b->raw_again);
    x->square = b->raw_again[s];
    for (int j = s; j < PADDED(s + 1); j++) b->raw_again[j] = 0;
    x->raw = b->raw_again;
    x->read_again = 1;
}

static void write_history(Basis *b, const Projection *x, SMALL rest) {
    SMALL *H = b->history + b->stored * b->width;
    int s = (int)b->stored;
    for (int j = 0; j < b->width; j++) H[j] = 0;
    H[s] = 1;
    if (!x->read_again) return;
    for (int j = 0; j < s; j++)
        H[j] = b->a[j] * (SMALL)sqrt(b->M[j * b->width + j]) / x->length;
    H[s] = rest / x->length;
}

/* Decompose the stored gradient: coordinates = U'x, new_length = |x - U U'x|. Writes nothing that
 * a row which is refused would have to restore. */
static void project(Basis *b, Projection *x) {
    int k = (int)b->rank, s = (int)b->stored;
    SMALL left, parts, loss, length = x->length, unsure, rest;
    x->read_again = x->is_off = 0;
    if (k == 0) {
        for (int j = 0; j < PADDED(s + 1); j++) b->a[j] = 0;
        x->new_length = length;
        if (b->has_history) write_history(b, x, length);
        return;
    }
    left = project_twice(b, x->raw, x->square, b->coordinates, &parts, &loss);
    loss = (SMALL)sqrt(loss);
    x->is_off = loss > MEASURABLE_LOSS * ORTHONORMAL * length &&
                loss > ROUNDING_LOSS * REAL_EPSILON * (SMALL)sqrt(parts);
    if (k == b->parameters) {
        x->new_length = 0;
        return;
    }
    if (parts <= MOST_AMPLIFIED * left &&
        parts <= LONGEST_SUBTRACTED * LONGEST_SUBTRACTED * x->square) {
        x->new_length = (SMALL)sqrt(left);
        if (b->has_history) write_history(b, x, x->new_length);
        return;
    }
    unsure = b->has_history ? find_uncertainty(b, length) : length;
    form_rest(b, x);
    rest = (SMALL)sqrt(x->square);
    x->new_length = 0;
    if (!(rest > CUTOFF * unsure)) return;
    if (b->has_history) write_history(b, x, rest);
    left = project_twice(b, x->raw, x->square, b->aged, &parts, &loss);
    if (!(left > (SMALL)0.25 * x->square)) return;
    for (int i = 0; i < k; i++) b->coordinates[i] += b->aged[i];
    x->new_length = (SMALL)sqrt(left);
}

/* W, changed so that W M W' = I again, to first order: each direction by those before it, along which
 * more was seen. */
static void correct_frame(Basis *b) {
    int s = (int)b->stored;
    for (int i = (int)b->rank - 1; i >= 0; i--) {
        SMALL *row = b->W + i * b->width;
        combine_small(b->M, b->width, s, s, row, NULL, b->Ma);
        multiply_small(b->W, b->width, i + 1, s, b->Ma, b->more);
        for (int j = 0; j < i; j++) b->more[j] = -b->more[j];
        b->more[i] = (1 - b->more[i]) / 2;
        combine_small(b->W, b->width, i + 1, s, b->more, row, row);
    }
}

/* U <- [U, (x - Q'a) / new_length]. */
static void append_direction(Basis *b, const Projection *x) {
    int s = (int)b->stored;
    SMALL *M = b->M, *row = b->W + b->rank * b->width, by = 1 / x->new_length;
    for (int j = 0; j < s; j++) M[s * b->width + j] = M[j * b->width + s] = x->raw[j];
    M[s * b->width + s] = x->square;
    for (int j = 0; j < s; j++) row[j] = -b->a[j] * by;
    row[s] = by;
    for (int j = s + 1; j < b->width; j++) row[j] = 0;
    b->stored++;
    b->rank++;
}
