/* Fold s rows of Q into k = rank rows, in place, and add shift Q to base.
 *
 * With W = (W1, W2) for kept and removed rows, W1 Q1 + W2 Q2 = W1 (Q1 + Y Q2), Y = W1^-1 W2. Gauss-
 * Jordan elimination, with the largest number of each row as its pivot, chooses the rows to keep, so
 * that Y is small. If directions would be long combinations all the same, U itself is written out. */
#include "frame.c"

/* M is recomputed after every second compaction, or more rarely if there are many directions. */
enum { DIRECTIONS_PER_COMPACTION = 16 };

/* What a compaction does: row t of the new Q is row from[t] of the old one (-1: zero), plus Y Q2. */
typedef struct {
    int removed;             /* how many rows Q2 has */
    int64_t *from, *removed_rows, *pivot; /* k; capacity; k */
    SMALL *Y, *C;            /* removed x vector and stored x vector: Y', and C' of Q <- C Q */
    SMALL *new_M;            /* k x width */
} Compaction;

/* A <- A1^-1 A for the columns that pivots choose; returns 0 if a row has no pivot. */
static int eliminate(SMALL *A, ptrdiff_t width, int k, int s, int64_t *pivot, int64_t *taken) {
    for (int j = 0; j < s; j++) taken[j] = 0;
    for (int i = 0; i < k; i++) {
        SMALL *row = A + i * width, largest = 0;
        int c = -1;
        for (int j = 0; j < s; j++)
            if (!taken[j] && absolute(row[j]) > largest) {
                largest = (SMALL)absolute(row[j]);
                c = j;
            }
        if (c < 0) return 0;
        taken[c] = 1;
        pivot[i] = c;
        for (int j = 0; j < s; j++) if (j != c) row[j] /= row[c];
        row[c] = 1;
        for (int r = 0; r < k; r++) {
            SMALL by = -A[r * width + c];
            if (r != i && by != 0) combine_small(row, 0, 1, s, &by, A + r * width, A + r * width);
        }
    }
    return 1;
}

/* Kept rows that lie in the first k places stay there; the others fill the places that are left. */
static void assign_places(int k, int s, const int64_t *pivot, const int64_t *taken, int64_t *place,
                          Compaction *c) {
    int t = 0;
    for (int j = 0; j < k; j++) c->from[j] = -1;
    for (int i = 0; i < k; i++)
        if (pivot[i] < k) {
            c->from[pivot[i]] = pivot[i];
            place[i] = pivot[i];
        }
    for (int i = 0; i < k; i++) {
        if (pivot[i] < k) continue;
        while (c->from[t] >= 0) t++;
        c->from[t] = pivot[i];
        place[i] = t;
    }
    c->removed = 0;
    for (int j = 0; j < s; j++) if (!taken[j]) c->removed_rows[c->removed++] = j;
}

/* new_M = C M C' for the rows that a compaction makes. */
static void transform_gram(Basis *b, const Compaction *c) {
    int k = (int)b->rank, s = (int)b->stored;
    SMALL *X = b->spare;
    memset(c->C, 0, sizeof(SMALL) * (size_t)(s * b->vector));
    for (int t = 0; t < k; t++) if (c->from[t] >= 0) c->C[c->from[t] * b->vector + t] = 1;
    for (int j = 0; j < c->removed; j++)
        for (int t = 0; t < k; t++)
            c->C[c->removed_rows[j] * b->vector + t] += c->Y[j * b->vector + t];
    rotate_small(0, b->M, b->width, c->C, b->vector, s, s, k, X, b->vector); /* M C' */
    rotate_small(0, c->C, b->vector, X, b->vector, k, s, k, c->new_M, b->width);
}

/* Choose rows to keep; sets Y, the new M and W. Returns 0 if some direction would be too long. */
static int keep_rows(Basis *b, Compaction *c) {
    int k = (int)b->rank, s = (int)b->stored;
    SMALL *A = b->next_W, *lengths = b->rest;
    int64_t *taken = b->order, *place = b->order + b->capacity;
    for (int j = 0; j < s; j++) lengths[j] = (SMALL)sqrt(b->M[j * b->width + j]);
    for (int i = 0; i < k; i++)
        for (int j = 0; j < b->width; j++)
            A[i * b->width + j] = j < s ? b->W[i * b->width + j] * lengths[j] : 0;
    if (!eliminate(A, b->width, k, s, c->pivot, taken)) return 0;
    assign_places(k, s, c->pivot, taken, place, c);
    for (int j = 0; j < c->removed; j++) {
        memset(c->Y + j * b->vector, 0, sizeof(SMALL) * (size_t)b->vector);
        for (int i = 0; i < k; i++)
            c->Y[j * b->vector + place[i]] = A[i * b->width + c->removed_rows[j]] *
                                             lengths[c->pivot[i]] / lengths[c->removed_rows[j]];
    }
    memset(A, 0, sizeof(SMALL) * (size_t)((b->most + 1) * b->width));
    for (int r = 0; r < k; r++)
        for (int i = 0; i < k; i++)
            A[r * b->width + place[i]] = b->W[r * b->width + c->pivot[i]];
    transform_gram(b, c);
    for (int r = 0; r < k; r++) {
        SMALL total = 0;
        for (int i = 0; i < k; i++)
            total += A[r * b->width + i] * A[r * b->width + i] * c->new_M[i * b->width + i];
        if (!(total <= MOST_AMPLIFIED)) return 0;
    }
    return 1;
}

/* Q <- U'. */
static void write_directions(Basis *b, Compaction *c) {
    int k = (int)b->rank, s = (int)b->stored;
    for (int t = 0; t < k; t++) c->from[t] = -1;
    for (int j = 0; j < s; j++) {
        c->removed_rows[j] = j;
        for (int t = 0; t < b->vector; t++)
            c->Y[j * b->vector + t] = t < k ? b->W[t * b->width + j] : 0;
    }
    c->removed = s;
    transform_gram(b, c);
    memset(b->next_W, 0, sizeof(SMALL) * (size_t)((b->most + 1) * b->width));
    for (int t = 0; t < k; t++) b->next_W[t * b->width + t] = 1;
}

/* base <- base + shift Q, and Q <- C Q, a panel of columns at a time. */
static void combine_panels(Basis *b, const Compaction *c) {
    int k = (int)b->rank, s = (int)b->stored, columns = (int)b->columns;
    ptrdiff_t stride = b->stride;
    SMALL *shift = c->C; /* its transpose, stored x PADDED(columns) */
    ptrdiff_t shift_stride = PADDED(columns);
    for (int j = 0; j < s; j++)
        for (int i = 0; i < columns; i++) shift[j * shift_stride + i] = b->shift[i * b->width + j];
    for (int j = 0; j < stride; j += PANEL) {
        int n = stride - j < PANEL ? (int)(stride - j) : PANEL;
        add_rotated_real(shift, shift_stride, b->rows + j, stride, columns, s, n, b->base + j,
                         stride);
        for (int i = 0; i < c->removed; i++)
            memcpy(b->panel + i * PANEL, b->rows + c->removed_rows[i] * stride + j,
                   sizeof(REAL) * (size_t)n);
        for (int t = 0; t < k; t++) {
            REAL *row = b->rows + t * stride + j;
            if (c->from[t] < 0) memset(row, 0, sizeof(REAL) * (size_t)n);
            else if (c->from[t] != t)
                memcpy(row, b->rows + c->from[t] * stride + j, sizeof(REAL) * (size_t)n);
        }
        add_rotated_real(c->Y, b->vector, b->panel, PANEL, k, c->removed, n, b->rows + j, stride);
    }
}

/* M = Q Q', eight rows at a time: Q is larger than the caches. */
static void compute_gram(Basis *b) {
    int s = (int)b->stored, p = (int)b->parameters, i = 0;
    for (; i + VECTORS <= s; i += VECTORS) {
        multiply_eight(b->rows, b->stride, i + VECTORS, p, b->rows + i * b->stride, b->stride,
                       b->ahead);
        for (int v = i; v < i + VECTORS; v++)
            for (int j = 0; j <= v; j++)
                b->M[v * b->width + j] = b->M[j * b->width + v] = b->ahead[j * VECTORS + v - i];
    }
    for (; i < s; i++) {
        multiply_real(b->rows, b->stride, i + 1, p, b->rows + i * b->stride, b->raw);
        for (int j = 0; j <= i; j++) b->M[i * b->width + j] = b->M[j * b->width + i] = b->raw[j];
    }
}

API void compact(Basis *b) {
    int k = (int)b->rank;
    int rarely = k / DIRECTIONS_PER_COMPACTION;
    SMALL *W = b->W;
    Compaction c;
    c.pivot = b->order + 2 * b->capacity;
    c.from = b->order + 3 * b->capacity;
    c.removed_rows = b->order + 4 * b->capacity;
    c.Y = b->spare + b->capacity * b->vector;
    c.C = c.Y + b->capacity * b->vector;
    c.new_M = c.C + b->capacity * (b->vector > PADDED(b->columns) ? b->vector : PADDED(b->columns));
    if (!keep_rows(b, &c)) write_directions(b, &c);
    combine_panels(b, &c);
    b->W = b->next_W;
    b->next_W = W;
    memset(W, 0, sizeof(SMALL) * (size_t)((b->most + 1) * b->width));
    b->stored = k;
    memset(b->shift, 0, sizeof(SMALL) * (size_t)(b->columns * b->width));
    memset(b->M, 0, sizeof(SMALL) * (size_t)(b->capacity * b->width));
    for (int i = 0; i < k; i++)
        memcpy(b->M + i * b->width, c.new_M + i * b->width, sizeof(SMALL) * (size_t)k);
    b->compactions++;
    if (b->compactions % (rarely > 2 ? rarely : 2) == 0) {
        compute_gram(b);
        correct_frame(b);
    }
}
