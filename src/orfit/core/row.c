/* One row of a learner that remembers directions U (alg:orfit1_infmem, alg:orfit_ipca).
 *
 *     C = U'g, t = |g - U C|                             project
 *     d = [R / (sigma^2 + kappa) C, rho t]               P g = [U O] d, g'P g = d.[C, t]
 *     w <- w + [U O] d (y - f) / S                       S = g'P g + R
 *     U, sigma <- top m of [[diag(sigma), C], [0, t]]
 *
 * kappa = R / prior variance and rho = R / (kappa + tau), with the energy tau of directions that are
 * not kept. With R = 0, d = [0, t]. Each candidate has its own R, tau and columns of w; all share U.
 *
 * A gradient whose square would overflow is stored divided by a power of two. */
#include "likelihood.c"
#include "spectrum.c"
#include "triangle.c"

/* A shorter step along a row of length one cannot let coefficients of rows overflow: stored rows are
 * at least 1 / sqrt(LARGEST_STORED) long, and their coefficients are bounded by MOST_AMPLIFIED. */
#define LONG_STEP ((SMALL)(IS_FLOAT ? 1e25 : 1e240))

static int has_roots(const Basis *b) { return b->kind != PRINCIPAL && b->kind != NOTHING; }
static SMALL *root_of(const Basis *b, int64_t i) { return b->roots + i * (b->most + 1) * b->vector; }

/* What the past is when this row arrives. */
typedef struct {
    SMALL fade;           /* of the energy of directions that are not kept */
    SMALL prior_variance;
    SMALL start;          /* the energy with which a direction starts */
} Past;

/* Let the past fade, and w drift: P <- P + q I turns each energy into another. */
static Past age(Basis *b) {
    Past past = {b->forgetting, b->prior_variance, 0};
    SMALL R = b->noise[b->chosen], q = b->drift, root = (SMALL)sqrt(b->forgetting);
    for (int i = 0; i < b->vector; i++) b->aged[i] = i < b->rank ? b->sigma[i] * root : 0;
    if (q > 0) {
        SMALL kappa = R / b->prior_variance, share = R / (R + q * kappa) * R;
        for (int i = 0; i < b->rank; i++)
            b->aged[i] *= (SMALL)sqrt(share) / hypotenuse((SMALL)sqrt(R + q * kappa),
                                                          (SMALL)sqrt(q) * b->aged[i]);
        past.fade *= share / (R + q * (past.fade * b->tail_level[0] + kappa));
        past.prior_variance += q;
    }
    for (int c = 0; c < b->scores.candidates; c++) b->floors[c] = b->noise[c] / past.prior_variance;
    if (b->tailed[b->chosen] > 0 && R > 0) past.start = past.fade * b->tail_level[b->chosen];
    return past;
}

/* Predictions and residuals of all candidates; returns BAD_PREDICTION if one is not finite. */
static int predict(Basis *b, const Row *row, const Projection *x) {
    Result *r = &b->result;
    int heads = (int)b->scores.heads, chosen = (int)b->chosen * heads;
    SMALL *along = r->left, zero = 0;
    for (int j = 0; j < b->columns; j++)
        along[j] = x->unit * (b->base_products[j] +
                              multiply_vectors(b->shift + j * b->width, b->raw, (int)b->stored));
    for (int j = 0; j < b->columns; j++) {
        int h = j % heads;
        SMALL offset = row->offset ? row->weight_root * row->offset[h] : 0;
        SMALL label = row->weight_root * row->label[h];
        r->prediction[j] = b->linear ? offset + along[j] : offset;
        r->residual[j] = find_residual(r->prediction[j], label);
        /* Other candidates of a model that is not linear are compared along its tangent. */
        if (!b->linear) r->residual[j] += along[chosen + h] - along[j];
        zero += 0 * r->prediction[j] + 0 * r->residual[j];
    }
    return zero == 0 ? DONE : BAD_PREDICTION;
}

/* P g = [U O] d and g'P g = d.z, for z = [C, t]. */
static SMALL find_direction(Basis *b, int c, SMALL tau) {
    int k = (int)b->rank;
    SMALL *z = b->coordinates, *d = b->directions + c * b->vector, R = b->noise[c];
    for (int i = k + 1; i < b->vector; i++) d[i] = 0;
    if (has_roots(b)) {
        const SMALL *H = root_of(b, c + 1);
        memcpy(d, z, sizeof(SMALL) * (size_t)k);
        solve_root_transposed(k, H, b->vector, d);
        solve_root(k, H, b->vector, d);
        for (int i = 0; i < k; i++) d[i] *= R;
    } else
        for (int i = 0; i < k; i++) d[i] = R / (b->aged[i] * b->aged[i] + b->floors[c]) * z[i];
    d[k] = R / (b->floors[c] + tau) * z[k];
    return multiply_vectors(d, z, k + 1);
}

/* The same where squares would overflow or vanish: z becomes E'z with g'P g = |E'z|^2. */
static SMALL find_far_direction(Basis *b, int c, SMALL tau, SMALL *factors) {
    int k = (int)b->rank;
    SMALL *z = b->coordinates, *d = b->directions + c * b->vector, root = (SMALL)sqrt(b->noise[c]);
    if (has_roots(b)) {
        const SMALL *H = root_of(b, c + 1);
        for (int i = 0; i < k; i++) factors[i] = root * z[i];
        solve_root_transposed(k, H, b->vector, factors);
        memcpy(d, factors, sizeof(SMALL) * (size_t)k);
        solve_root(k, H, b->vector, d);
        for (int i = 0; i < k; i++) d[i] *= root;
    } else
        for (int i = 0; i < k; i++) {
            SMALL share = root / hypotenuse(b->aged[i], (SMALL)sqrt(b->floors[c]));
            factors[i] = share * z[i];
            d[i] = share * factors[i];
        }
    factors[k] = root / (SMALL)sqrt(b->floors[c] + tau) * z[k];
    d[k] = root / (SMALL)sqrt(b->floors[c] + tau) * factors[k];
    return find_length(factors, k + 1);
}

/* How residuals of a candidate become a step: gain = r / (known + R), innovation = r / root. All of
 * them, and d, are divided by `scale`, and variances by its square. */
typedef struct {
    SMALL scale, known, noise, root, divisor, share;
} Fit;

static Fit find_fit(Basis *b, int c, const Past *past) {
    int k = (int)b->rank;
    SMALL tau = b->tailed[c] * past->fade * b->tail_level[c], t = b->coordinates[k];
    Fit f = {1, t * t, b->noise[c], t, t, 0};
    if (f.noise == 0) { /* the new direction alone */
        for (int i = 0; i < b->vector; i++) b->directions[c * b->vector + i] = i == k && t > 0;
        if (t == 0) f.root = f.divisor = f.share = 1;
        return f;
    }
    f.known = find_direction(b, c, tau);
    if (!is_safe(f.known + f.noise) || (k && !is_safe(b->aged[0] * b->aged[0] + b->floors[c]))) {
        SMALL length = find_far_direction(b, c, tau, b->rest), root = (SMALL)sqrt(f.noise);
        f.scale = length > root ? length : root;
        f.known = length / f.scale * (length / f.scale);
        f.noise = root / f.scale * (root / f.scale);
        for (int i = 0; i <= k; i++) b->directions[c * b->vector + i] /= f.scale;
    }
    f.divisor = f.known + f.noise;
    f.root = (SMALL)sqrt(f.divisor);
    f.share = f.noise / f.divisor;
    return f;
}

/* The gain of each candidate and head, the length of its step, and what is left of its residual. */
static void fit(Basis *b, const Past *past) {
    Result *r = &b->result;
    int heads = (int)b->scores.heads;
    for (int c = 0; c < b->scores.candidates; c++) {
        Fit f = find_fit(b, c, past);
        for (int j = c * heads; j < (c + 1) * heads; j++) {
            SMALL residual = r->residual[j] / f.scale;
            b->gains[j] = residual / f.divisor;
            b->innovations[j] = residual / f.root;
            r->left[j] = f.share * r->residual[j];
        }
        r->length[c] = find_length(b->directions + c * b->vector, (int)b->rank + 1) *
                       find_length(b->gains + c * heads, heads);
        r->variance[c] = (f.known + f.noise) * f.scale * f.scale;
    }
}

/* out (columns x stride) = w. */
API void copy_parameters(const Basis *b, REAL *out) {
    for (int c = 0; c < b->columns; c++)
        combine_real(b->rows, b->stride, (int)b->stored, (int)b->parameters, b->shift + c * b->width,
                     b->base + c * b->stride, out + c * b->stride);
}

/* The largest |w_j|, or a value that is not finite if coefficients of rows are too large for w. */
static SMALL find_largest_parameter(Basis *b) {
    SMALL largest = 0;
    for (int c = 0; c < b->columns; c++)
        for (int j = 0; j < b->stride; j += PANEL) {
            int n = b->stride - j < PANEL ? (int)(b->stride - j) : PANEL;
            combine_real(b->rows + j, b->stride, (int)b->stored, n, b->shift + c * b->width,
                         b->base + c * b->stride + j, b->panel);
            for (int i = 0; i < n; i++) {
                SMALL size = absolute((SMALL)b->panel[i]);
                if (!(size <= LARGEST_NUMBER)) return size;
                if (size > largest) largest = size;
            }
        }
    return largest;
}

/* Whether a step has a coefficient that is too large for its type. */
static int overflows(Basis *b, const Projection *x) {
    int heads = (int)b->scores.heads, k = (int)b->rank, s = (int)b->stored;
    for (int j = 0; j < b->columns; j++) {
        const SMALL *d = b->directions + j / heads * b->vector;
        SMALL last = x->new_length > 0 ? d[k] / x->new_length : 0;
        combine_small(b->W, b->width, k, s, d, NULL, b->rest);
        for (int i = 0; i < s; i++)
            if (!(absolute((b->rest[i] - b->a[i] * last) * b->gains[j]) < LARGEST_NUMBER / 4)) return 1;
        if (!(absolute(last * b->gains[j]) < LARGEST_NUMBER / 4)) return 1;
    }
    return 0;
}

/* Whether all parameters stay below the limit. The bound adds up steps that may cancel. */
static int check_step(Basis *b, const Projection *x) {
    SMALL total = find_length(b->result.length, (int)b->scores.candidates);
    SMALL bound = b->parameter_bound;
    if (!(total <= LONG_STEP * x->length) && overflows(b, x)) return TOO_LARGE;
    if (!(bound + total < b->limit)) bound = find_largest_parameter(b);
    if (!(bound + total < b->limit)) return TOO_LARGE;
    b->parameter_bound = bound + total;
    return DONE;
}

/* w <- w + [U O] d a. Returns whether `base` was changed, so that products with it are obsolete. */
static int move_parameters(Basis *b) {
    int heads = (int)b->scores.heads, s = (int)b->stored;
    for (int c = 0; c < b->scores.candidates; c++) {
        combine_small(b->W, b->width, (int)b->rank, s, b->directions + c * b->vector, NULL, b->rest);
        for (int j = c * heads; j < (c + 1) * heads; j++)
            combine_small(b->rest, 0, 1, s, b->gains + j, b->shift + j * b->width,
                          b->shift + j * b->width);
    }
    for (int j = 0; j < b->columns; j++)
        for (int i = 0; i < s; i++)
            if (!(absolute(b->shift[j * b->width + i]) < b->limit)) { /* the rows are short */
                copy_parameters(b, b->base);
                memset(b->shift, 0, sizeof(SMALL) * (size_t)(b->columns * b->width));
                return 1;
            }
    return 0;
}

/* Rotate U to the axes of [[diag(sigma), C], [0, t]], and keep the first m of them. */
static void rotate_to_axes(Basis *b, const Past *past, int is_new) {
    int n = (int)b->rank, kept = n < b->most ? n : (int)b->most;
    SMALL *W = b->W, least, dropped;
    int any_tail = 0;
    if (is_new) {
        SMALL start = (SMALL)sqrt(past->start);
        b->aged[n - 1] = n > 1 && start > b->aged[n - 2] ? b->aged[n - 2] : start;
        b->dropped_energy -= past->start; /* this energy counts as kept again */
    }
    decompose_rank_one(n, b->aged, b->coordinates, n, b->sigma, b->vectors, b->vector,
                       b->spectrum_work, b->spare, (int *)b->order);
    for (int i = n; i < b->vector; i++) b->sigma[i] = 0;
    rotate_small(0, b->vectors, b->vector, W, b->width, kept, n, (int)b->stored, b->next_W, b->width);
    b->W = b->next_W;
    b->next_W = W;
    b->rank = kept;
    if (kept == n) return;
    b->has_history = 0;
    dropped = b->sigma[kept] * b->sigma[kept];
    least = kept ? b->sigma[kept - 1] * b->sigma[kept - 1] : 0;
    b->dropped_energy += dropped;
    b->sigma[kept] = 0;
    for (int c = 0; c < b->scores.candidates; c++) any_tail |= b->tailed[c] > 0;
    if (!any_tail || !b->has_tail || !(b->noise[0] > 0) || !(least > 0)) return;
    if (dropped > LARGEST_ENERGY) dropped = LARGEST_ENERGY;
    if (least > LARGEST_ENERGY) least = LARGEST_ENERGY;
    b->tail_dropping += 1;
    extend_tail((int)b->scores.candidates, b->floors, b->tail_level, b->tail_dropped, b->tail_rows,
                b->tail_dropping, &dropped, 1, least, (SMALL)(b->parameters - b->most));
}

/* The last step of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* A random index below count < 2^32 that the seed and the number of draws determine. */
API int64_t draw(int64_t seed, int64_t draws, int64_t count) {
    uint64_t u = mix(mix((uint64_t)seed) + (uint64_t)draws * UINT64_C(0x9e3779b97f4a7c15));
    return (int64_t)((u >> 32) * (uint64_t)count >> 32);
}

static void drop_direction(Basis *b, int j, int roots) {
    int k = (int)b->rank;
    for (int i = 0; i <= j; i++)
        b->dropped_energy += b->roots[i * b->vector + j] * b->roots[i * b->vector + j];
    for (int i = 0; i < roots; i++) delete_from_root(k, root_of(b, i), b->vector, j);
    memmove(b->W + j * b->width, b->W + (j + 1) * b->width,
            sizeof(SMALL) * (size_t)((k - 1 - j) * b->width));
    b->rank--;
    b->has_history = 0;
}

/* Add the gradient to triangular roots, and drop what the kind of memory does not keep. With noise,
 * forgetting must be 1: a root above a floor cannot fade without its floor. */
static void extend_roots(Basis *b, int is_new) {
    int roots = b->is_noisy ? (int)b->scores.candidates + 1 : 1, before = (int)b->rank - is_new;
    SMALL fade = (SMALL)sqrt(b->forgetting);
    for (int f = 0; f < roots; f++) {
        SMALL *H = root_of(b, f);
        if (fade < 1) for (int64_t i = 0; i < before * b->vector; i++) H[i] *= fade;
        memcpy(b->rest, b->coordinates, sizeof(SMALL) * (size_t)b->rank);
        if (is_new) grow_root(before, H, b->vector, b->rest, f ? (SMALL)sqrt(b->floors[f - 1]) : 0);
        else add_row_to_root(before, H, b->vector, b->rest);
    }
    while (b->kind != UNLIMITED && b->rank > b->most)
        drop_direction(b, b->kind == RANDOM ? (int)draw(b->seed, ++b->draws, b->rank) : 0, roots);
}

static void drop_all(Basis *b) {
    for (int i = 0; i < b->rank; i++) b->dropped_energy += b->coordinates[i] * b->coordinates[i];
    b->rank = 0;
    b->has_history = 0;
}

/* Update the means of the scores; u^2 of a row of weight v counts once, in units of S - R + v R. A
 * row that is not zero is fitted with R = 0, also if the square of what is new underflows.
 * innovations (candidates x heads) and variances (candidates) are overwritten. */
static void score(Scores *s, const Result *r, const SMALL *noise, SMALL weight_root,
                  SMALL *innovations, SMALL *variances) {
    int heads = (int)s->heads, expected = 1;
    for (int c = 0; c < s->candidates; c++) expected &= r->variance[c] > 0;
    if (!expected) {
        for (int j = 0; noise[0] == 0 && j < s->candidates * heads; j++) {
            SMALL size = clip(absolute(r->left[j]), LARGEST_INNOVATION);
            if (size > s->unfitted) s->unfitted = size;
        }
        return;
    }
    for (int c = 0; c < s->candidates; c++) {
        SMALL v = weight_root * weight_root, R = noise[c], S = r->variance[c];
        SMALL known = S > R ? S - R : 0, share;
        variances[c] = known > 0 && v != 1 ? known / v + R : S;
        if (v == 1) continue;
        share = (SMALL)sqrt(S / (known + v * R));
        for (int j = c * heads; known + v * R > 0 && j < (c + 1) * heads; j++)
            innovations[j] *= share;
    }
    update_scores(s, noise, variances, innovations);
}

/* Learn the gradient that is stored behind the rows. It changes nothing unless it returns DONE. */
static int learn_loaded(Basis *b, const Row *row, Projection *x) {
    Past past;
    int code, is_new, k = (int)b->rank;
    if ((code = predict(b, row, x)) != DONE) return code;
    project(b, x);
    past = age(b);
    b->coordinates[k] = x->new_length;
    for (int i = 0; i <= k; i++) b->coordinates[i] *= x->unit;
    for (int i = k + 1; i < b->vector; i++) b->coordinates[i] = 0;
    fit(b, &past);
    if ((code = check_step(b, x)) != DONE) return code;

    b->prior_variance = past.prior_variance;
    b->dropped_energy *= b->forgetting;
    for (int c = 0; c < b->scores.candidates; c++) {
        b->tail_level[c] *= past.fade;
        b->tail_dropped[c] *= past.fade;
    }
    b->tail_dropping *= past.fade;
    b->tail_rows = past.fade * b->tail_rows + 1;
    b->result.gradient_length = x->length * x->unit;
    b->result.novelty = x->length > 0 ? x->new_length / x->length : 0;
    is_new = x->new_length > 0;
    if (x->is_off) correct_frame(b);
    if (is_new) append_direction(b, x);
    x->base_moved = move_parameters(b);
    if (b->kind == NOTHING) drop_all(b);
    else if (b->kind != PRINCIPAL) extend_roots(b, is_new);
    else if (b->rank) rotate_to_axes(b, &past, is_new);
    score(&b->scores, &b->result, b->noise, row->weight_root, b->innovations, b->variances);
    b->seen++;
    if (b->stored == b->capacity && b->kind != UNLIMITED) compact(b);
    return DONE;
}

static int needs_room(const Basis *b) {
    return b->stored == b->capacity || (b->kind == UNLIMITED && b->rank == b->most);
}

API int learn_row(Basis *b, const Row *row) {
    Projection x;
    int code;
    if (needs_room(b)) return NEEDS_ROOM;
    if ((code = load_gradient(b, row, &x)) != DONE) return code;
    return learn_loaded(b, row, &x);
}

/* Set the predictions of the chosen candidate of a linear model, and nothing else but scratch space. */
API int predict_row(Basis *b, const Row *row) {
    Projection x;
    int heads = (int)b->scores.heads, first = (int)b->chosen * heads;
    SMALL zero = 0;
    if (needs_room(b)) return NEEDS_ROOM;
    copy_gradient(b, row, b->stored, 1);
    read_gradient(b, &x);
    for (int j = first; j < first + heads; j++) {
        b->result.prediction[j] =
            b->base_products[j] +
            multiply_vectors(b->shift + j * b->width, x.raw, (int)b->stored);
        zero += 0 * b->result.prediction[j];
    }
    return zero == 0 ? DONE : BAD_PREDICTION;
}

/* Copy the result of candidate c to place i. */
static void record_result(const Result *r, int64_t c, int64_t heads, int64_t rank, const Results *out,
                          int64_t i) {
    size_t size = sizeof(SMALL) * (size_t)heads;
    memcpy(out->prediction + i * heads, r->prediction + c * heads, size);
    memcpy(out->residual + i * heads, r->residual + c * heads, size);
    memcpy(out->left + i * heads, r->left + c * heads, size);
    out->variance[i] = r->variance[c];
    out->length[i] = r->length[c];
    out->novelty[i] = r->novelty;
    out->rank[i] = (SMALL)rank;
}

/* Read ahead if eight gradients fit behind the rows, and if those before were stored as they are: a
 * gradient that is not makes the products of the following ones useless. */
enum { LONG_ROW = 256 }; /* parameters, from which on a read ahead is faster */
static int may_read_ahead(const Basis *b, const Rows *rows, int64_t i) {
    return b->parameters >= LONG_ROW && b->stored_as_given >= VECTORS && i + VECTORS <= rows->count &&
           b->stored + VECTORS <= b->capacity;
}

/* Learn rows in order, until one is refused; returns the place of the next, and its code. */
API int64_t learn_rows(Basis *b, const Rows *rows, const Results *out, int64_t *code) {
    int64_t i = rows->first;
    int ahead = VECTORS; /* the next gradient of those that were read */
    Projection x;
    *code = DONE;
    for (; i < rows->stop || (i < rows->count && ahead < VECTORS); i++) {
        Row row = row_of(rows, i, b->scores.heads);
        if (ahead == VECTORS && may_read_ahead(b, rows, i)) {
            load_ahead(b, rows, i);
            ahead = 0;
        }
        if (ahead < VECTORS && take_ahead(b, ahead, &x)) {
            *code = learn_loaded(b, &row, &x);
            ahead++;
        } else {
            if (needs_room(b)) *code = NEEDS_ROOM;
            else if ((*code = load_gradient(b, &row, &x)) == DONE) *code = learn_loaded(b, &row, &x);
            ahead = VECTORS;
        }
        if (*code != DONE) return i;
        b->stored_as_given = x.new_length > 0 && !x.read_again ? b->stored_as_given + 1 : 0;
        if (!b->stored_as_given || x.base_moved) ahead = VECTORS;
        record_result(&b->result, b->chosen, b->scores.heads, b->rank, out, i);
    }
    return i;
}
