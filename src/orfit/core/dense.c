/* One row of a learner that keeps the whole P (eq:rls_update): RLS, NTK-RLS and the Kalman filter.
 *
 *     P <- P / lambda + Q                                forgetting and drift
 *     y = P g,  S = g'y + R                              prediction: g'w
 *     w <- w + y (label - prediction) / S,  P <- P - y y' / S
 *
 * P = U D U' (ROOT): with f = U'g, v = D f and a_j = R + v_1 f_1 + ... + v_j f_j (Bierman, 1977)
 *     U_j <- U_j - (f_j / a_j-1) (v_1 U_1 + ... + v_j-1 U_j-1),  D_j <- D_j a_j-1 / a_j,  y = U v.
 * R = 0 projects: the first D_j with f_j != 0 becomes zero. A drift costs O(p^3) in this form.
 *
 * P itself (PLAIN): O(p^2) also with drift, but rounding is eps tr P. So this form is used only if
 * P drifts, and if no variance that a row leaves is below RESOLVED tr P.
 *
 * A gradient whose squares would overflow is divided by a power of two, `unit`. So are residuals,
 * and R is divided by its square. */
#include "covariance.c"

#define LARGEST_SAFE ((SMALL)(sizeof(SMALL) == 8 ? 1e200 : 1e20)) /* its square may overflow */
#define RESOLVED ((SMALL)(sizeof(SMALL) == 8 ? 1.5e-8 : 3.5e-4))       /* sqrt(eps) */
#define NEGLIGIBLE ((SMALL)(sizeof(SMALL) == 8 ? 2.4e-63 : 2.0e-28))  /* eps^4, of squares */
#define MOST_WIDENED ((SMALL)(sizeof(SMALL) == 8 ? 741455.2 : 394.8)) /* eps^(-3/8) */
#define WIDEST ((SMALL)(sizeof(SMALL) == 8 ? 2.1e123 : 2.6e15))       /* its square is a number */
#define VISIBLE ((SMALL)3e-2) /* share of the width of P that a row sees which points there */

/* What a row finds before anything is changed. */
typedef struct {
    SMALL unit;   /* a power of two */
    SMALL length; /* |g| / unit */
    SMALL noise;  /* R / unit^2 */
    SMALL fade;   /* 1 / lambda */
    SMALL known;  /* g'Pg / unit^2 */
    SMALL width, amplification;
    int has_drift, is_saved; /* is_saved: P and D before the row are in `spare` and `before` */
    int64_t form;            /* before the row */
} Gain;

/* |a| of a padded vector, also if squares overflow or vanish. */
static SMALL find_padded_length(const SMALL *a, int n) {
    SMALL square = multiply_vectors(a, a, n);
    return is_safe(square) ? (SMALL)sqrt(square) : find_length(a, n);
}

/* The power of two next to max(|g| width, sqrt(R)), where `largest` is the largest number of g. */
static SMALL find_unit(SMALL largest, SMALL width, SMALL noise) {
    int of_gradient, of_width, of_noise;
    (void)frexp(largest, &of_gradient);
    (void)frexp(width, &of_width);
    (void)frexp(sqrt(noise), &of_noise);
    of_gradient += of_width;
    if (noise > 0 && of_noise > of_gradient) of_gradient = of_noise;
    if (of_gradient > 1000) of_gradient = 1000;
    if (of_gradient < -1000) of_gradient = -1000;
    return (SMALL)ldexp(1, of_gradient);
}

/* Copy the gradient, times the root of its weight. */
static void copy_dense_gradient(Dense *q, const Row *row) {
    int p = (int)q->parameters, given = p - (int)q->bias;
    SMALL *g = q->gradient;
    for (int j = 0; j < given; j++) g[j] = row->weight_root * (SMALL)row->gradient[j];
    if (q->bias) g[given] = row->weight_root;
    for (int j = p; j < PADDED(p); j++) g[j] = 0;
}

/* Copy the gradient, and scale it; returns BAD_GRADIENT if it is not finite. */
static int load_dense_gradient(Dense *q, const Row *row, Gain *s) {
    int p = (int)q->parameters;
    SMALL *g = q->gradient, square, widened, largest;
    copy_dense_gradient(q, row);
    s->unit = 1;
    square = multiply_vectors(g, g, p);
    widened = q->width * q->width * square;
    if (!(square < LARGEST_SAFE && widened < LARGEST_SAFE && square > 1 / LARGEST_SAFE &&
          widened > 1 / LARGEST_SAFE)) {
        largest = find_largest(g, p);
        if (!(largest <= LARGEST_NUMBER)) return BAD_GRADIENT;
        if (largest > 0) s->unit = find_unit(largest, q->width, q->noise);
        for (int j = 0; j < p; j++) g[j] /= s->unit;
    }
    s->length = find_padded_length(g, p);
    s->noise = q->noise / s->unit / s->unit;
    s->fade = 1 / q->forgetting;
    s->width = q->width * (SMALL)sqrt(s->fade);
    s->amplification = q->amplification;
    s->has_drift = q->drift_kind != NO_DRIFT && !q->time_updated;
    s->is_saved = 0;
    s->form = q->form;
    q->result.gradient_length = s->length * s->unit;
    return q->result.gradient_length <= LARGEST_NUMBER ? DONE : BAD_GRADIENT;
}

/* g'w of head h. */
static SMALL find_output(const Dense *q, int64_t h) {
    const REAL *w = q->w + h * q->stride;
    Lanes x[PARTS];
    UNROLL for (int l = 0; l < PARTS; l++) x[l] = splat(0);
    for (int j = 0; j < q->parameters; j += LANES)
        UNROLL for (int l = 0; l < PARTS; l++)
            x[l] += load_real(w + j + l * WIDTH) * load(q->gradient + j + l * WIDTH);
    return add_lanes(x);
}

/* Set the predictions of a linear model, and nothing else but scratch space. */
API int predict_dense_row(Dense *q, const Row *row) {
    SMALL zero = 0;
    copy_dense_gradient(q, row);
    for (int h = 0; h < q->scores.heads; h++) {
        q->result.prediction[h] = find_output(q, h);
        zero += 0 * q->result.prediction[h];
    }
    return zero == 0 ? DONE : BAD_PREDICTION;
}

/* Predictions and residuals of all heads; returns BAD_PREDICTION if one is not finite. */
static int predict_dense(Dense *q, const Row *row, const Gain *s) {
    Result *r = &q->result;
    SMALL zero = 0;
    for (int h = 0; h < q->scores.heads; h++) {
        SMALL offset = row->offset ? row->weight_root * row->offset[h] : 0;
        if (q->linear) offset += s->unit * find_output(q, h);
        r->prediction[h] = offset;
        r->residual[h] = find_residual(offset, row->weight_root * row->label[h]);
        zero += 0 * r->prediction[h];
    }
    return zero == 0 ? DONE : BAD_PREDICTION;
}

/* Whether forgetting has widened P so much that its rounding hides rows of this length. Where the
 * bound of the width exceeds the limit, the width is computed. */
static int is_too_wide(const Dense *q, Gain *s) {
    SMALL limit = q->prior_width, length = s->length * s->unit;
    int p = (int)q->parameters;
    if (!(q->forgetting < 1)) return 0;
    if (!q->wound_up) {
        SMALL visible = (SMALL)sqrt(q->noise) / length;
        if (visible > 0 && visible < limit) limit = visible;
        limit *= MOST_WIDENED;
    }
    if (s->width > limit) {
        SMALL trace = s->fade * sum_variances((int)q->form, q->P, q->stride, q->D, p);
        s->width = (SMALL)sqrt(trace / (SMALL)p);
    }
    return s->width > limit;
}

/* Whether g points clearly where P is widest, so that rounding does not hide it. */
static int is_visible(const Dense *q, const Gain *s) {
    return !q->wound_up && !s->has_drift && s->width < WIDEST &&
           (SMALL)sqrt(s->known) > VISIBLE * s->width * s->length;
}

/* y += Q g; sets the trace of Q, and the least variance that Q adds along any direction. */
static void add_drift_product(const Dense *q, SMALL *y, SMALL *trace, SMALL *least) {
    int p = (int)q->parameters;
    const SMALL *Q = q->drift, *g = q->gradient;
    *trace = 0;
    *least = q->drift_kind == MATRIX ? 0 : Q[0];
    if (q->drift_kind == MATRIX) {
        multiply_covariance(Q, q->stride, p, g, q->z);
        for (int j = 0; j < p; j++) y[j] += q->z[j];
        *trace = sum_variances(PLAIN, Q, q->stride, NULL, p);
        return;
    }
    for (int j = 0; j < p; j++) {
        SMALL variance = Q[q->drift_kind == DIAGONAL ? j : 0];
        y[j] += variance * g[j];
        *trace += variance;
        if (variance < *least) *least = variance;
    }
}

/* The amplification of rounding after a drift. If the drift adds more than rounding to all
 * variances, g'Pg is not rounding. */
static SMALL find_amplification(const Dense *q, SMALL least) {
    return (SMALL)sqrt(least) > q->cutoff * q->prior_width ? 1 : q->amplification;
}

/* P <- P + Q in the form ROOT: an addition of rank one for each column of a root of Q. */
static void add_drift_to_root(Dense *q) {
    int p = (int)q->parameters, count = q->drift_kind == MATRIX ? (int)q->drift_rank : p;
    for (int k = 0; k < count; k++) {
        SMALL *a = q->z, weight = 1;
        for (int j = 0; j < PADDED(p); j++) a[j] = 0;
        if (q->drift_kind == MATRIX) {
            for (int j = 0; j < p; j++) a[j] = q->drift_root[k * q->stride + j];
            add_to_factors(q->P, q->stride, q->D, p - 1, 1, a);
            continue;
        }
        a[k] = 1;
        weight = q->drift[q->drift_kind == DIAGONAL ? k : 0];
        add_to_factors(q->P, q->stride, q->D, k, weight, a);
    }
}

/* P <- P + Q in the form PLAIN. */
static void add_drift_to_plain(Dense *q) {
    int p = (int)q->parameters;
    for (int j = 0; j < p; j++) {
        SMALL *row = q->P + j * q->stride;
        if (q->drift_kind == MATRIX)
            for (int i = 0; i < PADDED(j + 1); i++) row[i] += q->drift[j * q->stride + i];
        else row[j] += q->drift[q->drift_kind == DIAGONAL ? j : 0];
    }
}

/* Set f, v and g'Pg. */
static void measure_root(Dense *q, Gain *s) {
    int p = (int)q->parameters, n = PADDED(p);
    SMALL *restrict f = q->f, *restrict v = q->v;
    const SMALL *restrict D = q->D;
    multiply_factors(q->P, q->stride, p, q->gradient, f);
    for (int j = p; j < n; j++) f[j] = 0;
    for (int j = 0; j < n; j++) v[j] = s->fade * D[j] * f[j];
    s->known = multiply_vectors(v, f, p);
}

/* The variance that the row leaves along g, unless it leaves most of what there was. */
static SMALL find_variance_left(const Gain *s, SMALL known) {
    if (!(known > s->noise)) return LARGEST_NUMBER;
    return s->noise / (known + s->noise) * (known / (s->length * s->length));
}

/* Set y = (P / lambda + Q) g and g'y; returns whether P stays accurate enough in this form. */
static int measure_plain(Dense *q, Gain *s) {
    int p = (int)q->parameters;
    SMALL trace = s->fade * sum_variances(PLAIN, q->P, q->stride, NULL, p), more = 0, least = 0;
    multiply_covariance(q->P, q->stride, p, q->gradient, q->y);
    if (s->fade > 1) for (int j = 0; j < p; j++) q->y[j] *= s->fade;
    if (s->has_drift) add_drift_product(q, q->y, &more, &least);
    s->known = multiply_vectors(q->y, q->gradient, p);
    if (s->known < 0) s->known = 0;
    s->width = (SMALL)sqrt((trace + more) / (SMALL)p);
    s->amplification = find_amplification(q, least);
    return find_variance_left(s, s->known) + least > RESOLVED * (trace + more);
}

/* Whether P / lambda + Q, and what the row leaves of it, are accurate in the form PLAIN, too. */
static int is_resolved(Dense *q, Gain *s) {
    int p = (int)q->parameters;
    SMALL trace = s->fade * sum_variances(ROOT, q->P, q->stride, q->D, p), more, least, smallest;
    for (int j = 0; j < PADDED(p); j++) q->y[j] = 0;
    add_drift_product(q, q->y, &more, &least);
    s->width = (SMALL)sqrt((trace + more) / (SMALL)p);
    s->amplification = find_amplification(q, least);
    smallest = find_variance_left(s, s->known + multiply_vectors(q->y, q->gradient, p));
    for (int j = 0; j < p; j++)
        if (s->fade * q->D[j] < smallest) smallest = s->fade * q->D[j];
    return smallest + least > RESOLVED * (trace + more);
}

static void save_covariance(Dense *q, Gain *s) {
    if (s->is_saved) return;
    memcpy(q->spare, q->P, sizeof(SMALL) * (size_t)(PADDED(q->parameters) * q->stride));
    memcpy(q->saved_D, q->D, sizeof(SMALL) * (size_t)PADDED(q->parameters));
    s->is_saved = 1;
}

static void restore_covariance(Dense *q, const Gain *s) {
    if (!s->is_saved) return;
    memcpy(q->P, q->spare, sizeof(SMALL) * (size_t)(PADDED(q->parameters) * q->stride));
    memcpy(q->D, q->saved_D, sizeof(SMALL) * (size_t)PADDED(q->parameters));
    q->form = s->form;
}

/* Choose the form of P, and set g'Pg and f and v, or y. In the form ROOT, a drift is added to P. */
static void measure_row(Dense *q, Gain *s) {
    int p = (int)q->parameters;
    if (q->form == PLAIN) {
        if (measure_plain(q, s)) return;
        save_covariance(q, s);
        memcpy(q->plain, q->P, sizeof(SMALL) * (size_t)(PADDED(p) * q->stride));
        factor_covariance(q->plain, q->stride, p, q->P, q->D, q->z, q->y);
        q->form = ROOT;
    }
    measure_root(q, s);
    if (!s->has_drift) return;
    save_covariance(q, s);
    if (!is_resolved(q, s)) {
        for (int j = 0; j < p; j++) q->D[j] *= s->fade;
        add_drift_to_root(q);
        s->fade = 1;
        measure_root(q, s);
        return;
    }
    fill_covariance(q->P, q->stride, q->D, p, q->z);
    q->form = PLAIN;
    measure_plain(q, s);
}

/* With R = 0, whether g'Pg is the rounding of all rows before. */
static int is_rounding(const Dense *q, const Gain *s) {
    if (q->noise > 0) return 0;
    return !((SMALL)sqrt(s->known) > q->cutoff * s->amplification * q->prior_width * s->length);
}

/* |y|, by a read of U or P. */
static SMALL find_step_length(Dense *q) {
    int p = (int)q->parameters;
    if (q->form == ROOT) {
        for (int i = 0; i < PADDED(p); i++) q->y[i] = 0;
        for (int j = 0; j < p; j++)
            for (int i = 0; i <= j; i++) q->y[i] += q->v[j] * q->P[j * q->stride + i];
    }
    return find_padded_length(q->y, p);
}

/* Whether all parameters stay below the limit; `gain` is the length of all residuals over S. */
static int check_dense_step(Dense *q, const Gain *s, SMALL gain) {
    /* |y| <= sqrt(tr P g'Pg) */
    SMALL trace_root = s->width * (SMALL)sqrt((SMALL)q->parameters), largest = 0;
    SMALL length = trace_root * (SMALL)sqrt(s->known) * gain;
    if (q->parameter_bound + length < q->limit) return DONE;
    length = find_step_length(q) * gain;
    if (q->parameter_bound + length < q->limit) return DONE;
    for (int h = 0; h < q->scores.heads; h++)
        for (int j = 0; j < q->parameters; j++)
            if (absolute(q->w[h * q->stride + j]) > largest)
                largest = absolute(q->w[h * q->stride + j]);
    if (!(largest + length < q->limit)) return TOO_LARGE;
    q->parameter_bound = largest; /* the bound adds up steps that may cancel */
    return DONE;
}

/* P <- P / lambda + Q - y y' / S, and y if the form is ROOT. */
static void update_dense(Dense *q, const Gain *s, SMALL S) {
    int p = (int)q->parameters, n = PADDED(p);
    SMALL *restrict f = q->f, *restrict v = q->v, *restrict before = q->before;
    SMALL *restrict after = q->after, *restrict D = q->D, sum = s->noise, least = NEGLIGIBLE * S;
    if (q->form == PLAIN) {
        SMALL by = S > 0 ? 1 / (SMALL)sqrt(S) : 0;
        for (int j = 0; j < n; j++) q->z[j] = by * q->y[j];
        update_covariance(q->P, q->stride, p, s->fade, q->z);
        if (s->has_drift) add_drift_to_plain(q);
        return;
    }
    if (!(S > 0)) {
        for (int j = 0; j < n; j++) D[j] *= s->fade;
        return;
    }
    if (sum < least) sum = 0;
    for (int j = 0; j < n; j++) { /* what is negligible in S would be divided by */
        SMALL share = v[j] * f[j];
        after[j] = share < least ? 0 : share;
        f[j] = share < least ? 0 : f[j];
        v[j] = share < least ? 0 : v[j];
    }
    for (int j = 0; j < n; j++) {
        before[j] = sum;
        sum += after[j];
        after[j] = sum;
    }
    for (int j = 0; j < n; j++) {
        SMALL kept = before[j] / after[j], by = -f[j] / before[j];
        D[j] *= s->fade * (after[j] > 0 ? kept : 1);
        f[j] = before[j] > 0 ? by : 0;
    }
    update_factors(q->P, q->stride, p, v, f, q->y);
}

/* w <- w + y r / S, and what is left of residuals. */
static void move_dense_parameters(Dense *q, const Gain *s, SMALL S) {
    Result *r = &q->result;
    const SMALL *restrict y = q->y;
    SMALL share = s->noise > 0 ? 1 / (1 + s->known / s->noise) : S > 0 ? 0 : 1;
    for (int h = 0; h < q->scores.heads; h++) {
        REAL *restrict w = q->w + h * q->stride;
        SMALL residual = r->residual[h] / s->unit, by = S > 0 ? residual / S : 0;
        r->left[h] = share * r->residual[h];
        q->innovations[h] = S > 0 ? residual / (SMALL)sqrt(S) : 0;
        if (!(S > 0)) continue;
        for (int j = 0; j < PADDED(q->parameters); j++) w[j] = (REAL)((SMALL)w[j] + by * y[j]);
    }
}

API int learn_dense_row_later(Dense *q, const REAL *w_given, const Row *row);

/* Learn one row. It changes nothing unless it returns DONE. After NEEDS_LIMIT the caller divides P
 * by lambda, limits it, adds Q, and learns the row with lambda = 1 and without drift. */
API int learn_dense_row(Dense *q, const Row *row) {
    Result *r = &q->result;
    Gain s;
    SMALL S, T, gain;
    int code, needs_limit;
    if (q->makes_steps && !q->time_updated) return learn_dense_row_later(q, NULL, row);
    if ((code = load_dense_gradient(q, row, &s)) != DONE) return code;
    if ((code = predict_dense(q, row, &s)) != DONE) return code;
    needs_limit = is_too_wide(q, &s);
    measure_row(q, &s);
    if (needs_limit && !is_visible(q, &s)) {
        restore_covariance(q, &s);
        return NEEDS_LIMIT;
    }
    if (is_rounding(q, &s)) s.known = 0;
    T = (SMALL)sqrt(s.known);
    S = s.known + s.noise;
    gain = S > 0 ? find_length(r->residual, (int)q->scores.heads) / s.unit / S : 0;
    if (check_dense_step(q, &s, gain) != DONE) {
        restore_covariance(q, &s);
        return TOO_LARGE;
    }

    r->variance[0] = S * s.unit * s.unit;
    r->length[0] = 0;
    r->novelty = s.length > 0 ? T / (q->prior_width * s.length) : 0;
    if (!(r->novelty < 1)) r->novelty = 1;
    q->amplification = s.amplification;
    if (q->noise == 0 && S > 0) {
        SMALL ratio = q->prior_width * s.length / T;
        q->amplification = (SMALL)sqrt(s.amplification * s.amplification + ratio * ratio);
    }
    q->width = s.width;
    update_dense(q, &s, S);
    if (S > 0) {
        r->length[0] = find_padded_length(q->y, (int)q->parameters) * gain;
        q->parameter_bound += r->length[0];
    }
    move_dense_parameters(q, &s, S);
    score(&q->scores, r, &q->noise, row->weight_root, q->innovations, q->variances);
    q->time_updated = 0;
    q->seen++;
    return DONE;
}

/* Learn rows in order, until one is refused; returns the place of the next, and its code. */
API int64_t learn_dense_rows(Dense *q, const Rows *rows, const Results *out, int64_t *code) {
    int64_t i = rows->first;
    *code = DONE;
    for (; i < rows->stop; i++) {
        Row row = row_of(rows, i, q->scores.heads);
        if ((*code = learn_dense_row(q, &row)) != DONE) return i;
        record_result(&q->result, 0, q->scores.heads, q->parameters, out, i);
    }
    return i;
}

/* P = A P A' by additions of rank one, D_j (A U_j) (A U_j)'. */
static void transform_root(Dense *q, const SMALL *columns) {
    int p = (int)q->parameters;
    memcpy(q->spare, q->P, sizeof(SMALL) * (size_t)(PADDED(p) * q->stride));
    memcpy(q->saved_D, q->D, sizeof(SMALL) * (size_t)PADDED(p));
    memset(q->P, 0, sizeof(SMALL) * (size_t)(PADDED(p) * q->stride));
    for (int j = 0; j < p; j++) {
        q->P[j * q->stride + j] = 1;
        q->D[j] = 0;
    }
    for (int j = 0; j < p; j++) {
        combine_small(columns, q->stride, j + 1, p, q->spare + j * q->stride, NULL, q->z);
        add_to_factors(q->P, q->stride, q->D, p - 1, q->saved_D[j], q->z);
    }
}

/* P = A (P A'), the lower triangle of blocks. */
static void transform_plain(Dense *q, const SMALL *columns) {
    int p = (int)q->parameters;
    ptrdiff_t stride = q->stride;
    mirror_covariance(q->P, stride, p);
    rotate_small(0, q->P, stride, columns, stride, p, p, p, q->spare, stride);
    for (int j = 0; j < p; j += LANES) {
        int last = p - j <= LANES, rows = last ? p - j : LANES, width = last ? p : j + LANES;
        rotate_small(0, columns + j, stride, q->spare, stride, rows, p, width,
                     q->P + j * stride, stride);
    }
    close_covariance(q->P, stride, p);
}

/* P <- number^2 P */
static void scale_covariance(Dense *q, SMALL number) {
    int p = (int)q->parameters;
    for (int j = 0; j < p; j++) {
        if (q->form == ROOT) q->D[j] *= number * number;
        else
            for (int i = 0; i < PADDED(j + 1); i++) q->P[j * q->stride + i] *= number * number;
    }
}

/* One step in time: P <- A P A' + Q. A is a matrix, given by its columns, p x stride, or a number
 * if that is NULL. Changes nothing and returns TOO_LARGE if P might leave the finite numbers. */
API int move_dense(Dense *q, SMALL number, const SMALL *columns) {
    int p = (int)q->parameters;
    SMALL trace = sum_variances((int)q->form, q->P, q->stride, q->D, p), variance = LARGEST_NUMBER;
    SMALL square = columns ? 0 : number * number, more = 0, least = 0;
    for (int j = 0; columns && j < p; j++)
        square += multiply_vectors(columns + j * q->stride, columns + j * q->stride, p);
    for (int j = 0; j < PADDED(p); j++) q->gradient[j] = q->y[j] = 0;
    if (q->drift_kind != NO_DRIFT) add_drift_product(q, q->y, &more, &least);
    if (!(square * trace + more < LARGEST_NUMBER / 4)) return TOO_LARGE;
    for (int j = 0; q->form == ROOT && j < p; j++)
        if (q->D[j] < variance) variance = q->D[j];
    if (!columns && square > 0) variance += least / square;
    if (q->form == ROOT && variance > RESOLVED * trace) {
        fill_covariance(q->P, q->stride, q->D, p, q->z);
        q->form = PLAIN;
    }
    if (!columns) scale_covariance(q, number);
    else if (q->form == PLAIN) transform_plain(q, columns);
    else transform_root(q, columns);
    if (q->drift_kind != NO_DRIFT && q->form == PLAIN) add_drift_to_plain(q);
    if (q->drift_kind != NO_DRIFT && q->form == ROOT) add_drift_to_root(q);
    q->amplification = find_amplification(q, least);
    q->width = (SMALL)sqrt(sum_variances((int)q->form, q->P, q->stride, q->D, p) / (SMALL)p);
    return DONE;
}

/* next_w = A w + influence (heads x stride, or NULL); returns its largest absolute value. */
static SMALL find_next_parameters(Dense *q, const SMALL *influence) {
    int p = (int)q->parameters;
    SMALL largest = 0;
    for (int64_t h = 0; h < q->scores.heads; h++) {
        for (int j = 0; j < PADDED(p); j++) q->z[j] = (SMALL)q->w[h * q->stride + j];
        if (q->columns_of_A) combine_small(q->columns_of_A, q->stride, p, p, q->z, NULL, q->y);
        for (int j = 0; j < p; j++) {
            SMALL next = q->columns_of_A ? q->y[j] : q->number_A * q->z[j];
            if (influence) next += influence[h * q->stride + j];
            q->next_w[h * q->stride + j] = (REAL)next;
            if (!(absolute(next) <= largest)) largest = absolute(next);
        }
    }
    return largest;
}

/* One step in time, w <- A w + influence or w <- w_given, P <- A P A' + Q; the next row makes none.
 * A: a number, or a matrix by its columns. Changes nothing unless it returns DONE. */
API int advance_dense(Dense *q, const REAL *w_given, const SMALL *influence) {
    size_t size = sizeof(REAL) * (size_t)(q->scores.heads * q->stride);
    SMALL largest = 0;
    int code;
    if (!w_given) largest = find_next_parameters(q, influence);
    else {
        memcpy(q->next_w, w_given, size);
        for (int64_t j = 0; j < q->scores.heads * q->stride; j++)
            if (!(absolute((SMALL)w_given[j]) <= largest)) largest = absolute((SMALL)w_given[j]);
    }
    if (!(largest < q->limit)) return TOO_LARGE;
    if ((code = move_dense(q, q->number_A, q->columns_of_A)) != DONE) return code;
    memcpy(q->w, q->next_w, size);
    q->parameter_bound = largest;
    q->time_updated = 1;
    return DONE;
}

/* A step in time, unless it was made by itself, and then a row; both are made or none. */
API int learn_dense_row_later(Dense *q, const REAL *w_given, const Row *row) {
    Dense before = *q;
    size_t size = sizeof(SMALL) * (size_t)(PADDED(q->parameters) * q->stride);
    size_t of_D = sizeof(SMALL) * (size_t)PADDED(q->parameters);
    size_t of_w = sizeof(REAL) * (size_t)(q->scores.heads * q->stride);
    int code;
    memcpy(q->P_before, q->P, size);
    memcpy(q->D_before, q->D, of_D);
    memcpy(q->w_before, q->w, of_w);
    code = advance_dense(q, w_given, NULL);
    if (code == DONE) code = learn_dense_row(q, row);
    if (code == DONE) return DONE;
    *q = before;
    memcpy(q->P, q->P_before, size);
    memcpy(q->D, q->D_before, of_D);
    memcpy(q->w, q->w_before, of_w);
    return code;
}

API void copy_dense_parameters(const Dense *q, REAL *out) {
    memcpy(out, q->w, sizeof(REAL) * (size_t)(q->scores.heads * q->stride));
}

/* Set the pointers of all arrays but P and the drift to a block that begins at a multiple of 64
 * bytes and holds zeros; returns the end of the block. block NULL: returns the number of bytes. */
API int64_t place_dense(Dense *q, char *block) {
    uintptr_t at = (uintptr_t)block;
    int64_t p, heads = PADDED(q->scores.heads), spare;
    q->stride = find_stride(q->parameters);
    p = PADDED(q->parameters);
    spare = q->moves ? p * q->stride : 0;
    PLACE(p, q->D);
    PLACE(q->scores.heads * q->stride, q->w);
    PLACE(1, q->scores.surprise);
    PLACE(heads, q->scores.scale);
    PLACE(heads, q->scores.recent_scale);
    PLACE(heads, q->scores.neighbours);
    PLACE(heads, q->scores.last);
    PLACE(heads, q->result.prediction);
    PLACE(heads, q->result.residual);
    PLACE(heads, q->result.left);
    PLACE(1, q->result.variance);
    PLACE(1, q->result.length);
    PLACE(heads, q->innovations);
    PLACE(1, q->variances);
    PLACE(p, q->gradient);
    PLACE(p, q->f);
    PLACE(p, q->v);
    PLACE(p, q->before);
    PLACE(p, q->after);
    PLACE(p, q->y);
    PLACE(p, q->z);
    PLACE(p, q->saved_D);
    PLACE(spare, q->spare);
    PLACE(spare, q->plain);
    PLACE(spare, q->P_before);
    PLACE(p, q->D_before);
    PLACE(q->scores.heads * q->stride, q->w_before);
    PLACE(q->scores.heads * q->stride, q->next_w);
    return (int64_t)(at - (uintptr_t)block);
}
