/* Products of matrices that lie in rows. `real` says whether the rows hold numbers of type REAL or
 * SMALL. Rows begin at multiples of 64 bytes and are padded with zeros to a multiple of eight numbers.
 *
 * A product of two vectors is one sum of eight lanes over BLOCK columns at a time; the sums of the
 * blocks are added in order. All other sums run in the order of their index. So no result depends on
 * the width of vectors, or on how many rows are processed together. */
#include "core.h"

enum {
    BLOCK = 512,       /* columns; also keeps the rounding of long sums small */
    VECTORS = 8,       /* gradients that are multiplied in one read */
    MOST_TOGETHER = 8  /* rows that are multiplied together, or vectors of a row that are combined */
};
/* How much fits into the registers: rows with one vector, rows and vectors, rows and vectors of a tile. */
#if WIDTH == 8
enum { ROWS_TOGETHER = 8, BLOCK_ROWS = 3, BLOCK_VECTORS = 8, TILE_ROWS = 8, TILE_VECTORS = 3 };
#elif WIDTH == 4
enum { ROWS_TOGETHER = 4, BLOCK_ROWS = 3, BLOCK_VECTORS = 2, TILE_ROWS = 4, TILE_VECTORS = 3 };
#else
enum { ROWS_TOGETHER = 2, BLOCK_ROWS = 1, BLOCK_VECTORS = 2, TILE_ROWS = 4, TILE_VECTORS = 2 };
#endif

#define LARGEST_NUMBER ((SMALL)(IS_FLOAT ? 3.4028234e38 : 1.7976931348623157e308))
#define MOST_EXPONENT (IS_FLOAT ? 120 : 1000) /* its power of two and the inverse are in range */
/* Sums of squares of such squares stay in range. */
#define LARGEST_SQUARE ((SMALL)(IS_FLOAT ? 1e16 : 1e140))
static int is_safe(SMALL square) {
    return square <= LARGEST_SQUARE && square >= 1 / LARGEST_SQUARE;
}

INLINE Lanes load_at(int real, const void *a, ptrdiff_t i) {
    return real ? load_real((const REAL *)a + i) : load((const SMALL *)a + i);
}
INLINE void store_at(int real, void *a, ptrdiff_t i, Lanes x) {
    if (real) store_real((REAL *)a + i, x);
    else store((SMALL *)a + i, x);
}
INLINE const void *row_at(int real, const void *a, ptrdiff_t i) {
    return real ? (const void *)((const REAL *)a + i) : (const void *)((const SMALL *)a + i);
}

/* sums[r * VECTORS + v] += row r . vector v over n columns, a multiple of LANES; or sums[r] if there
 * is one vector. */
INLINE void add_products(int real, int rows, int vectors, const void *A, ptrdiff_t stride,
                         const void *G, ptrdiff_t g_stride, int n, SMALL *sums) {
    Lanes x[MOST_TOGETHER][VECTORS][PARTS];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++)
        UNROLL for (int h = 0; h < PARTS; h++) x[r][v][h] = splat(0);
    for (int j = 0; j < n; j += LANES)
        UNROLL for (int h = 0; h < PARTS; h++) {
            Lanes a[MOST_TOGETHER];
            UNROLL for (int r = 0; r < rows; r++) a[r] = load_at(real, A, r * stride + j + h * WIDTH);
            UNROLL for (int v = 0; v < vectors; v++) {
                Lanes g = load_at(real, G, v * g_stride + j + h * WIDTH);
                UNROLL for (int r = 0; r < rows; r++) x[r][v][h] += a[r] * g;
            }
        }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++)
        sums[vectors == 1 ? r : r * VECTORS + v] += add_lanes(x[r][v]);
}

INLINE int multiply_together(int real, int rows, int i, int count, const void *A, ptrdiff_t stride,
                             const void *g, int n, SMALL *out) {
    for (; i + rows <= count; i += rows)
        for (int j = 0; j < n; j += BLOCK)
            add_products(real, rows, 1, row_at(real, A, i * stride + j), stride, row_at(real, g, j), 0,
                         n - j < BLOCK ? n - j : BLOCK, out + i);
    return i;
}

/* out[i] = row i . g, for `count` rows of n columns. */
INLINE void multiply_rows(int real, const void *A, ptrdiff_t stride, int count, int n, const void *g,
                          SMALL *out) {
    int i = 0;
    n = PADDED(n);
    for (int j = 0; j < count; j++) out[j] = 0;
    i = multiply_together(real, ROWS_TOGETHER, i, count, A, stride, g, n, out);
    if (ROWS_TOGETHER > 4) i = multiply_together(real, 4, i, count, A, stride, g, n, out);
    if (ROWS_TOGETHER > 2) i = multiply_together(real, 2, i, count, A, stride, g, n, out);
    multiply_together(real, 1, i, count, A, stride, g, n, out);
}
API void multiply_real(const REAL *A, ptrdiff_t stride, int count, int n, const REAL *g, SMALL *out) {
    multiply_rows(1, A, stride, count, n, g, out);
}
API void multiply_small(const SMALL *A, ptrdiff_t stride, int count, int n, const SMALL *g,
                        SMALL *out) {
    multiply_rows(0, A, stride, count, n, g, out);
}
API SMALL multiply_vectors(const SMALL *a, const SMALL *b, int n) {
    SMALL sum = 0;
    multiply_together(0, 1, 0, 1, a, 0, b, PADDED(n), &sum);
    return sum;
}

/* out[i * VECTORS + v] = row i . vector v, for VECTORS vectors in one read of the rows. */
API void multiply_eight(const REAL *A, ptrdiff_t stride, int count, int n, const REAL *G,
                        ptrdiff_t g_stride, SMALL *out) {
    n = PADDED(n);
    memset(out, 0, sizeof(SMALL) * (size_t)(count * VECTORS));
    for (int j = 0; j < n; j += BLOCK) {
        int i = 0, width = n - j < BLOCK ? n - j : BLOCK;
        for (; i + BLOCK_ROWS <= count; i += BLOCK_ROWS)
            for (int v = 0; v < VECTORS; v += BLOCK_VECTORS)
                add_products(1, BLOCK_ROWS, BLOCK_VECTORS, A + i * stride + j, stride,
                             G + v * g_stride + j, g_stride, width, out + i * VECTORS + v);
        for (; i < count; i++)
            for (int v = 0; v < VECTORS; v += BLOCK_VECTORS)
                add_products(1, 1, BLOCK_VECTORS, A + i * stride + j, stride, G + v * g_stride + j,
                             g_stride, width, out + i * VECTORS + v);
    }
}

/* The largest absolute value, or one that is not finite. */
static SMALL find_largest(const SMALL *a, int n) {
    SMALL largest = 0;
    for (int i = 0; i < n; i++) {
        SMALL size = absolute(a[i]);
        if (!(size <= LARGEST_NUMBER)) return size;
        if (size > largest) largest = size;
    }
    return largest;
}

/* |a|, also if squares overflow or vanish. */
API SMALL find_length(const SMALL *a, int n) {
    SMALL square = 0, largest, unit;
    int exponent;
    for (int i = 0; i < n; i++) square += a[i] * a[i];
    if (is_safe(square)) return (SMALL)sqrt(square);
    largest = find_largest(a, n);
    if (!(largest > 0 && largest <= LARGEST_NUMBER)) return largest;
    (void)frexp(largest, &exponent);
    unit = (SMALL)ldexp(1, exponent < -MOST_EXPONENT ? -MOST_EXPONENT : exponent - 1);
    square = 0;
    for (int i = 0; i < n; i++) square += (a[i] / unit) * (a[i] / unit);
    return unit * (SMALL)sqrt(square);
}

INLINE int combine_vectors(int real, int vectors, int j, int n, const void *A, ptrdiff_t stride,
                           int count, const SMALL *by, const void *start, void *out) {
    for (; j + vectors * WIDTH <= n; j += vectors * WIDTH) {
        Lanes x[MOST_TOGETHER];
        UNROLL for (int c = 0; c < vectors; c++)
            x[c] = start ? load_at(real, start, j + c * WIDTH) : splat(0);
        for (int i = 0; i < count; i++) {
            Lanes a = splat(by[i]);
            UNROLL for (int c = 0; c < vectors; c++)
                x[c] += a * load_at(real, A, i * stride + j + c * WIDTH);
        }
        UNROLL for (int c = 0; c < vectors; c++) store_at(real, out, j + c * WIDTH, x[c]);
    }
    return j;
}

/* out = start + sum over i of by[i] times row i, n columns; start may be out, or NULL for zero. */
INLINE void combine_rows(int real, const void *A, ptrdiff_t stride, int count, int n, const SMALL *by,
                         const void *start, void *out) {
    int j = 0;
    n = PADDED(n);
    j = combine_vectors(real, 8, j, n, A, stride, count, by, start, out);
    j = combine_vectors(real, 4, j, n, A, stride, count, by, start, out);
    j = combine_vectors(real, 2, j, n, A, stride, count, by, start, out);
    combine_vectors(real, 1, j, n, A, stride, count, by, start, out);
}
API void combine_real(const REAL *A, ptrdiff_t stride, int count, int n, const SMALL *by,
                      const REAL *start, REAL *out) {
    combine_rows(1, A, stride, count, n, by, start, out);
}
API void combine_small(const SMALL *A, ptrdiff_t stride, int count, int n, const SMALL *by,
                       const SMALL *start, SMALL *out) {
    combine_rows(0, A, stride, count, n, by, start, out);
}

/* `rows` rows of out, `vectors` vectors wide: out (+)= T' B for T and B of `count` rows. */
INLINE void multiply_tile(int real, int add, int rows, int vectors, const SMALL *T, ptrdiff_t t_stride,
                          const void *B, ptrdiff_t b_stride, int count, void *out,
                          ptrdiff_t out_stride) {
    Lanes x[8][3];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < vectors; c++)
        x[r][c] = add ? load_at(real, out, r * out_stride + c * WIDTH) : splat(0);
    for (int i = 0; i < count; i++) {
        Lanes b[3];
        UNROLL for (int c = 0; c < vectors; c++) b[c] = load_at(real, B, i * b_stride + c * WIDTH);
        UNROLL for (int r = 0; r < rows; r++) {
            Lanes a = splat(T[i * t_stride + r]);
            UNROLL for (int c = 0; c < vectors; c++) x[r][c] += a * b[c];
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < vectors; c++)
        store_at(real, out, r * out_stride + c * WIDTH, x[r][c]);
}

INLINE void multiply_band(int real, int add, int vectors, const SMALL *T, ptrdiff_t t_stride,
                          const void *B, ptrdiff_t b_stride, int m, int count, void *out,
                          ptrdiff_t out_stride) {
    int i = 0;
#define TILE(rows)                                                                                  \
    for (; i + (rows) <= m; i += (rows))                                                            \
    multiply_tile(real, add, rows, vectors, T + i, t_stride, B, b_stride, count,                    \
                  (void *)row_at(real, out, i * out_stride), out_stride)
    TILE(TILE_ROWS);
    if (TILE_ROWS > 4) TILE(4);
    TILE(2);
    TILE(1);
#undef TILE
}

/* out (m x n) (+)= T' B, for T (count x m) and B (count x n); B is out's neighbour in type. */
INLINE void multiply_transposed(int real, int add, const SMALL *T, ptrdiff_t t_stride, const void *B,
                                ptrdiff_t b_stride, int m, int count, int n, void *out,
                                ptrdiff_t out_stride) {
    int j = 0;
    n = PADDED(n);
#define BAND(vectors)                                                                               \
    for (; j + (vectors) * WIDTH <= n; j += (vectors) * WIDTH)                                      \
    multiply_band(real, add, vectors, T, t_stride, row_at(real, B, j), b_stride, m, count,          \
                  (void *)row_at(real, out, j), out_stride)
    BAND(TILE_VECTORS);
    if (TILE_VECTORS > 2) BAND(2);
    BAND(1);
#undef BAND
}
API void rotate_small(int add, const SMALL *T, ptrdiff_t t_stride, const SMALL *B, ptrdiff_t b_stride,
                      int m, int count, int n, SMALL *out, ptrdiff_t out_stride) {
    if (add) multiply_transposed(0, 1, T, t_stride, B, b_stride, m, count, n, out, out_stride);
    else multiply_transposed(0, 0, T, t_stride, B, b_stride, m, count, n, out, out_stride);
}
API void add_rotated_real(const SMALL *T, ptrdiff_t t_stride, const REAL *B, ptrdiff_t b_stride, int m,
                          int count, int n, REAL *out, ptrdiff_t out_stride) {
    multiply_transposed(1, 1, T, t_stride, B, b_stride, m, count, n, out, out_stride);
}
