/* Learners of random sizes and settings learn random rows, of which some hold any bits at all:
 *     core_fuzz COUNT SEED
 * A row that is refused must change nothing, and one that is learned must leave finite numbers. */
#include "core_driver.h"

enum { LONGEST_CALL = 30 };

/* A number of any size, or one that is none. */
static double draw_any(void) {
    switch (draw_below(14)) {
    case 0: return 0;
    case 1: return -0.0;
    case 2: return 1;
    case 3: return ldexp(draw_number(), draw_below(2200) - 1100);
    case 4: return ldexp(draw_number(), draw_below(300) - 150);
    default: return draw_number();
    }
}

static double draw_wrong(void) {
    static const double WRONG[] = {INFINITY, -INFINITY, NAN, 1.7e308, -3.4e38, 5e-324};
    return draw_below(40) ? draw_any() : WRONG[draw_below(6)];
}

/* A copy of exactly these bytes, so that reading beyond them is an error. */
static void *copy_of(const void *from, size_t bytes) {
    void *made = malloc(bytes ? bytes : 1);
    if (!made) exit(2);
    if (bytes) memcpy(made, from, bytes);
    return made;
}

typedef struct {
    int64_t count;
    Rows rows;
    Results out;
    void *owned[12];
} Call;

static void fill(SMALL *to, int64_t count, double (*draw)(void)) {
    for (int64_t i = 0; i < count; i++) to[i] = (SMALL)draw();
}

static Call new_call(int given, int heads) {
    static REAL x[LONGEST_CALL * 700];
    static SMALL numbers[LONGEST_CALL * 8];
    double (*draw)(void) = draw_below(3) ? draw_number : draw_below(2) ? draw_any : draw_wrong;
    int n = 1 + draw_below(LONGEST_CALL), repeats = draw_below(2);
    int power = draw_below(5) ? 0 : draw_below(1400) - 700;
    size_t each = sizeof(SMALL) * (size_t)n;
    Call c = {0};
    for (int i = 0; i < n; i++)
        for (int j = 0; j < given; j++) {
            int copied = repeats && i && draw_bits() % 2;
            x[i * given + j] = copied ? x[(i - 1) * given + j] : (REAL)ldexp(draw(), power);
        }
    c.owned[0] = copy_of(x, sizeof(REAL) * (size_t)(n * given));
    fill(numbers, n * heads, draw);
    c.owned[1] = copy_of(numbers, each * (size_t)heads);
    fill(numbers, n * heads, draw);
    c.owned[2] = copy_of(numbers, each * (size_t)heads);
    for (int i = 0; i < n; i++)
        numbers[i] = (SMALL)(draw_below(3) ? fabs(draw_any()) : draw_below(3));
    c.owned[3] = copy_of(numbers, each);
    for (int i = 4; i < 11; i++) c.owned[i] = copy_of(numbers, i < 7 ? each * (size_t)heads : each);
    c.rows.count = c.rows.stop = n;
    c.rows.stride = given;
    c.rows.gradients = c.owned[0];
    c.rows.labels = c.owned[1];
    c.rows.offsets = draw_below(2) ? c.owned[2] : NULL;
    c.rows.weight_roots = draw_below(2) ? c.owned[3] : NULL;
    c.out.prediction = c.owned[4];
    c.out.residual = c.owned[5];
    c.out.left = c.owned[6];
    c.out.variance = c.owned[7];
    c.out.length = c.owned[8];
    c.out.novelty = c.owned[9];
    c.out.rank = c.owned[10];
    return c;
}

static void free_call(Call *c) {
    for (int i = 0; i < 11; i++) free(c->owned[i]);
}

static void fail(const char *message, long i) {
    fprintf(stderr, "learner %ld: %s\n", i, message);
    exit(1);
}

static void check_finite(const REAL *w, int64_t count, long i) {
    for (int64_t j = 0; j < count; j++)
        if (!(w[j] - w[j] == 0)) fail("w is not finite", i);
}

/* Learn rows one by one and together. */
static void try_learner(long i) {
    static const int MOST[] = {1, 2, 3, 8, 17};
    Basis b = {0};
    REAL *w;
    int p = draw_below(4) ? 1 + draw_below(40) : 256 + draw_below(300);
    int noisy = draw_below(3) > 0, fades, drifts;
    b.parameters = p;
    b.bias = draw_below(2);
    b.kind = draw_below(5);
    b.most = b.kind == NOTHING ? 0 : MOST[draw_below(5)];
    b.capacity = b.most + 1 + 8 + draw_below(20);
    if (b.kind == UNLIMITED) b.capacity = b.most = 5 + draw_below(30);
    b.scores.heads = 1 + draw_below(3);
    b.scores.candidates = draw_below(2) ? 1 : 1 + draw_below(8);
    b.linear = draw_below(3) > 0;
    b.is_noisy = noisy;
    b.chosen = draw_below((int)b.scores.candidates);
    b.seed = (int64_t)draw_bits();
    fades = !draw_below(3) && (!noisy || b.kind == PRINCIPAL || b.kind == NOTHING);
    drifts = b.kind == PRINCIPAL && noisy && b.scores.candidates == 1 && !draw_below(3);
    b.forgetting = fades ? (SMALL)0.9 : 1;
    b.drift = drifts ? (SMALL)0.01 : 0;
    b.has_history = !noisy || (b.kind != PRINCIPAL && b.kind != UNLIMITED);
    place_learner(&b);
    for (int c = 0; c < b.scores.candidates; c++) {
        b.noise[c] = noisy ? (SMALL)ldexp(1, draw_below(3) ? 3 * c - 9 : draw_below(60) - 30) : 0;
        b.tailed[c] = (SMALL)draw_below(2);
    }
    w = reserve((size_t)(b.columns * b.stride) * sizeof(REAL));
    for (int call = 0; call < 12; call++) {
        Call c = new_call(p - (int)b.bias, (int)b.scores.heads);
        int64_t code, done = learn_rows(&b, &c.rows, &c.out, &code);
        copy_parameters(&b, w);
        check_finite(w, b.columns * b.stride, i);
        if (code != DONE) {
            uint64_t before = hash_learner(&b);
            Row row = row_of(&c.rows, done, b.scores.heads);
            if (learn_row(&b, &row) != code) fail("a refused row has another code", i);
            if (hash_learner(&b) != before) fail("a refused row changed something", i);
        }
        free_call(&c);
    }
    release_all();
}

static void try_filter(long i) {
    Dense q = {0};
    static const SMALL DRIFT = (SMALL)0.01;
    int p = 1 + draw_below(40);
    q.parameters = p;
    q.bias = draw_below(2);
    q.scores.heads = 1 + draw_below(3);
    q.linear = draw_below(3) > 0;
    q.noise = draw_below(3) ? (SMALL)ldexp(1, draw_below(60) - 30) : 0;
    q.forgetting = draw_below(2) ? 1 : (SMALL)0.9;
    q.moves = draw_below(2);
    place_filter(&q);
    if (q.moves) {
        q.drift_kind = NUMBER;
        q.drift = &DRIFT;
    }
    for (int call = 0; call < 12; call++) {
        Call c = new_call(p - (int)q.bias, (int)q.scores.heads);
        int64_t code, done = learn_dense_rows(&q, &c.rows, &c.out, &code);
        check_finite(q.w, q.scores.heads * q.stride, i);
        if (code != DONE) {
            uint64_t before = hash_filter(&q);
            Row row = row_of(&c.rows, done, q.scores.heads);
            if (learn_dense_row(&q, &row) != (int)code) fail("another code", i);
            if (hash_filter(&q) != before) fail("a refused row changed dense P", i);
        }
        free_call(&c);
    }
    release_all();
}

int main(int count, char **arguments) {
    long learners = count > 1 ? atol(arguments[1]) : 1000;
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    for (long i = 0; i < learners; i++) {
        state = mix(seed + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15)) | 1;
        if (i % 4) try_learner(i);
        else try_filter(i);
    }
    return 0;
}
