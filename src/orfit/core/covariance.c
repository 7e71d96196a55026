/* The two forms of a covariance P (p x p, symmetric, P >= 0), and how they change.
 *
 * ROOT: P = U D U', U upper triangular with a unit diagonal, D >= 0 (Bierman, 1977). Row j of the
 * array is column j of U. An update is as accurate as that of a square root, and D stays >= 0.
 * PLAIN: row j of the array is row j of P, up to its diagonal.
 *
 * Blocks of eight columns that contain the diagonal are complete: U has zeros there, and P its
 * upper triangle. Loops over a row end at PADDED(j + 1); numbers beyond are zero and not read. Four
 * rows are processed together, which saves loads; additions have the order of the rows. */
#include "place.c"

enum { ROWS_AT_ONCE = 4 };

/* f = U'g; n columns. */
API void multiply_factors(const SMALL *U, ptrdiff_t stride, int n, const SMALL *g, SMALL *f) {
    for (int j = 0; j < n; j += ROWS_AT_ONCE) {
        const SMALL *u = U + j * stride;
        Lanes x[ROWS_AT_ONCE][PARTS];
        UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++)
            UNROLL for (int h = 0; h < PARTS; h++) x[c][h] = splat(0);
        for (int i = 0; i < PADDED(j + 1); i += LANES)
            UNROLL for (int h = 0; h < PARTS; h++) {
                Lanes v = load(g + i + h * WIDTH);
                UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++)
                    x[c][h] += load(u + c * stride + i + h * WIDTH) * v;
            }
        UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++) f[j + c] = add_lanes(x[c]);
    }
}

/* y = U v, column by column, and U_j <- U_j + s_j y, where y is the sum of the columns before j. */
API void update_factors(SMALL *U, ptrdiff_t stride, int n, const SMALL *v, const SMALL *s,
                        SMALL *y) {
    for (int i = 0; i < PADDED(n); i++) y[i] = 0;
    for (int j = 0; j < n; j += ROWS_AT_ONCE) {
        SMALL *u = U + j * stride;
        Lanes along[ROWS_AT_ONCE], by[ROWS_AT_ONCE];
        UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++) {
            along[c] = splat(v[j + c]);
            by[c] = splat(s[j + c]);
        }
        for (int i = 0; i < PADDED(j + 1); i += WIDTH) {
            Lanes sum = load(y + i);
            UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++) {
                Lanes before = load(u + c * stride + i);
                store(u + c * stride + i, before + by[c] * sum);
                sum = sum + along[c] * before;
            }
            store(y + i, sum);
        }
    }
}

/* U D U' <- U D U' + weight a a', for an a that is zero behind `last`; a is overwritten.
 *
 * With D_j' = D_j + weight a_j^2, for j = last ... 0 (Agee and Turner, 1972):
 *     U_j <- (D_j U_j + weight a_j a) / D_j',  a <- a - a_j U_j,  weight <- weight D_j / D_j' */
API void add_to_factors(SMALL *U, ptrdiff_t stride, SMALL *D, int last, SMALL weight, SMALL *a) {
    for (int j = last; j >= 0 && weight > 0; j--) {
        SMALL *u = U + j * stride, at = a[j], total = D[j] + weight * at * at, keep, gain;
        if (!(weight * at * at > 0)) continue;
        keep = D[j] / total;
        gain = weight * at / total;
        for (int i = 0; i < PADDED(j + 1); i++) {
            SMALL before = u[i];
            u[i] = keep * before + gain * a[i];
            a[i] = a[i] - at * before;
        }
        u[j] = 1;
        a[j] = 0;
        D[j] = total;
        weight *= keep;
    }
}

/* y = P g, n rows; one read of the triangle. */
API void multiply_covariance(const SMALL *P, ptrdiff_t stride, int n, const SMALL *g, SMALL *y) {
    for (int i = 0; i < PADDED(n); i++) y[i] = 0;
    for (int j = 0; j < n; j += ROWS_AT_ONCE) {
        const SMALL *row = P + j * stride;
        int block = PADDED(j + 1) - LANES; /* where the block with the diagonal begins */
        Lanes x[ROWS_AT_ONCE][PARTS], by[ROWS_AT_ONCE];
        UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++) {
            by[c] = splat(g[j + c]);
            UNROLL for (int h = 0; h < PARTS; h++)
                x[c][h] = load(row + c * stride + block + h * WIDTH) * load(g + block + h * WIDTH);
        }
        for (int i = 0; i < block; i += LANES)
            UNROLL for (int h = 0; h < PARTS; h++) {
                Lanes v = load(g + i + h * WIDTH), sum = load(y + i + h * WIDTH);
                UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++) {
                    Lanes r = load(row + c * stride + i + h * WIDTH);
                    x[c][h] += r * v;
                    sum = sum + by[c] * r;
                }
                store(y + i + h * WIDTH, sum);
            }
        UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++) y[j + c] = add_lanes(x[c]);
    }
}

/* P <- factor P - z z' */
API void update_covariance(SMALL *P, ptrdiff_t stride, int n, SMALL factor, const SMALL *z) {
    for (int j = 0; j < n; j += ROWS_AT_ONCE) {
        SMALL *row = P + j * stride;
        Lanes by[ROWS_AT_ONCE];
        UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++) by[c] = splat(z[j + c]);
        for (int i = 0; i < PADDED(j + 1); i += WIDTH) {
            Lanes v = load(z + i);
            UNROLL for (int c = 0; c < ROWS_AT_ONCE; c++) {
                SMALL *at = row + c * stride + i;
                store(at, factor * load(at) - by[c] * v);
            }
        }
    }
}

/* Set the upper triangle of P, within n columns, from the lower one. */
API void mirror_covariance(SMALL *P, ptrdiff_t stride, int n) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i < j; i++) P[i * stride + j] = P[j * stride + i];
}

/* Make the blocks with the diagonal symmetric, and what is beyond them zero. */
API void close_covariance(SMALL *P, ptrdiff_t stride, int n) {
    for (int j = 0; j < PADDED(n); j++) {
        int end = PADDED(j + 1);
        for (int i = j + 1; i < end; i++) P[j * stride + i] = P[i * stride + j];
        for (int i = end; i < stride; i++) P[j * stride + i] = 0;
    }
}

/* P = U D U' in place of U. Row j of P needs the columns i >= j of U alone, and P_ji, i <= j,
 * replaces U_ij, which later rows do not need. spare: PADDED(n) numbers. */
API void fill_covariance(SMALL *U, ptrdiff_t stride, const SMALL *D, int n, SMALL *spare) {
    for (int j = 0; j < n; j++) {
        int end = PADDED(j + 1);
        for (int i = 0; i < end; i++) spare[i] = 0;
        for (int k = j; k < n; k++) { /* P_j = sum of U_jk D_k U_k */
            const SMALL *u = U + k * stride;
            SMALL by = u[j] * D[k];
            for (int i = 0; i < end; i++) spare[i] += by * u[i];
        }
        for (int i = 0; i < end; i++) U[j * stride + i] = i <= j ? spare[i] : 0;
    }
    close_covariance(U, stride, n);
}

/* U and D with U D U' = P, also for a singular P, which is overwritten; a, start: PADDED(n).
 *
 * Cholesky's a a' is subtracted where the largest share of a variance is left, until only rounding
 * is left. U D U' is the sum of all a a'. */
API void factor_covariance(SMALL *P, ptrdiff_t stride, int n, SMALL *U, SMALL *D, SMALL *a,
                      SMALL *start) {
    memset(U, 0, sizeof(SMALL) * (size_t)(PADDED(n) * stride));
    for (int j = 0; j < PADDED(n); j++) {
        D[j] = a[j] = start[j] = 0;
        if (j < n) U[j * stride + j] = 1;
        if (j < n) start[j] = P[j * stride + j];
    }
    for (int k = 0; k < n; k++) {
        SMALL largest = (SMALL)n * EPS, root;
        int pivot = -1;
        for (int j = 0; j < n; j++)
            if (P[j * stride + j] > largest * start[j]) {
                largest = P[j * stride + j] / start[j];
                pivot = j;
            }
        if (pivot < 0) return;
        root = (SMALL)sqrt(P[pivot * stride + pivot]);
        for (int i = 0; i < n; i++)
            a[i] = (i < pivot ? P[pivot * stride + i] : P[i * stride + pivot]) / root;
        update_covariance(P, stride, n, 1, a);
        P[pivot * stride + pivot] = 0;
        add_to_factors(U, stride, D, n - 1, 1, a);
    }
}

/* The trace of P. */
API SMALL sum_variances(int form, const SMALL *P, ptrdiff_t stride, const SMALL *D, int n) {
    SMALL sum = 0;
    if (form == PLAIN) {
        for (int j = 0; j < n; j++) sum += P[j * stride + j];
        return sum;
    }
    for (int j = 0; j < n; j++) {
        const SMALL *u = P + j * stride;
        Lanes x[PARTS];
        UNROLL for (int h = 0; h < PARTS; h++) x[h] = splat(0);
        for (int i = 0; i < PADDED(j + 1); i += LANES)
            UNROLL for (int h = 0; h < PARTS; h++) {
                Lanes a = load(u + i + h * WIDTH);
                x[h] += a * a;
            }
        sum += D[j] * add_lanes(x);
    }
    return sum;
}
