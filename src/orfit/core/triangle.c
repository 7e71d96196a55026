/* Triangular roots: upper triangular H (k x k), H'H = Gamma Gamma' + kappa I, changed in O(k^2).
 *
 * A row is added by Givens rotations (Golub, Van Loan, section 5.1.8): rotation j replaces row j of
 * H and what is left of the added row by c H_j + s row and c row - s H_j, so that row_j becomes 0.
 * Each column of the result has an error of a few k EPS times the length of that column, so columns
 * of very different scale are equally accurate. Solving with H has the error of a change of each of
 * its elements by (k + 2) EPS times that element.
 *
 * Rows of H have `stride` numbers. Numbers outside of the triangle are 0, also up to PADDED(k). */
#include "lanes.h"

/* sqrt(a^2 + b^2), also where the squares would overflow or underflow. */
INLINE SMALL hypotenuse(SMALL a, SMALL b) {
    const SMALL most = absolute(a) > absolute(b) ? absolute(a) : absolute(b);
    SMALL up = 1, down = 1;
    if (most > (SMALL)(IS_FLOAT ? 0x1p60 : 0x1p500)) {
        up = (SMALL)(IS_FLOAT ? 0x1p-80 : 0x1p-600);
        down = (SMALL)(IS_FLOAT ? 0x1p80 : 0x1p600);
    } else if (most < (SMALL)(IS_FLOAT ? 0x1p-50 : 0x1p-480)) {
        up = (SMALL)(IS_FLOAT ? 0x1p100 : 0x1p900);
        down = (SMALL)(IS_FLOAT ? 0x1p-100 : 0x1p-900);
    }
    a *= up;
    b *= up;
    return (SMALL)sqrt(a * a + b * b) * down;
}

/* H'H + row row'. The row (k numbers) is overwritten. A diagonal without negative numbers has none
 * afterwards. */
API void add_row_to_root(int k, SMALL *H, ptrdiff_t stride, SMALL *row) {
    for (int j = 0; j < k; j++) {
        SMALL *restrict upper = H + j * stride, *restrict lower = row;
        if (lower[j] == 0) continue;
        const SMALL length = hypotenuse(upper[j], lower[j]);
        const SMALL c = upper[j] / length, s = lower[j] / length;
        upper[j] = length;
        lower[j] = 0;
        for (int i = j + 1; i < k; i++) {
            const SMALL a = upper[i], b = lower[i];
            upper[i] = c * a + s * b;
            lower[i] = c * b - s * a;
        }
    }
}

/* One more unknown, whose diagonal starts with `diagonal`, and then H'H + row row'. The row (k + 1
 * numbers) is overwritten. H has space for k + 1 rows, and stride >= PADDED(k + 1). */
API void grow_root(int k, SMALL *H, ptrdiff_t stride, SMALL *row, SMALL diagonal) {
    for (int j = 0; j < k; j++) H[j * stride + k] = 0;
    for (int i = 0; i < PADDED(k + 1); i++) H[k * stride + i] = 0;
    H[k * stride + k] = diagonal;
    add_row_to_root(k + 1, H, stride, row);
}

/* H'H without its j-th row and column. What remains of row j of H is a row that is added to the
 * triangle below it. The last row and column of H become 0. */
API void delete_from_root(int k, SMALL *H, ptrdiff_t stride, int j) {
    const int last = k - 1, right = j + 1;
    if (j < last)
        add_row_to_root(last - j, H + right * stride + right, stride, H + j * stride + right);
    for (int i = 0; i < last; i++) {
        const int first = i < j ? j : i; /* columns from here on move to the left */
        const SMALL *source = H + (i < j ? i : i + 1) * stride + first + 1;
        memmove(H + i * stride + first, source, sizeof(SMALL) * (size_t)(last - first));
        H[i * stride + last] = 0;
    }
    for (int i = 0; i < k; i++) H[last * stride + i] = 0;
}

/* b <- H^-1 b. b has PADDED(k) numbers and begins at a multiple of 64 bytes, and so do rows of H;
 * the numbers after b[k - 1] must be finite. The diagonal of H must not have zeros. */
API void solve_root(int k, const SMALL *H, ptrdiff_t stride, SMALL *b) {
    for (int i = k - 1; i >= 0; i--) {
        const SMALL *row = H + i * stride;
        Lanes sum[PARTS];
        UNROLL for (int h = 0; h < PARTS; h++) sum[h] = splat(0);
        for (int j = (i + 1) / LANES * LANES; j < k; j += LANES)
            UNROLL for (int h = 0; h < PARTS; h++) {
                const int first = j + h * WIDTH;
                const Mask is_known = less(splat((SMALL)i), count_from(first));
                const Lanes product = load(row + first) * load(b + first);
                sum[h] = sum[h] + pick(is_known, product, splat(0));
            }
        b[i] = (b[i] - add_lanes(sum)) / row[i];
    }
}

/* b <- H^-T b. The diagonal of H must not have zeros. */
API void solve_root_transposed(int k, const SMALL *H, ptrdiff_t stride, SMALL *b) {
    for (int i = 0; i < k; i++) {
        const SMALL *row = H + i * stride;
        b[i] = b[i] / row[i];
        for (int j = i + 1; j < k; j++) b[j] = b[j] - row[j] * b[i];
    }
}
