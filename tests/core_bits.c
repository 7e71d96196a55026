/* Prints a hash of all numbers of many learners after their streams: every compiler, target and
 * machine prints the same (core_bits.txt). */
#include "core_driver.h"

enum { MOST_PARAMETERS = 300, ROWS = 70, HEADS = 3, STREAMS = 7 };
static REAL gradients[ROWS * MOST_PARAMETERS];
static SMALL labels[ROWS * HEADS], roots[ROWS];
static SMALL outputs[7][ROWS * HEADS];

/* Rows: uniform, graded, repeated, nearly parallel, one-hot, far from zero, of any length. */
static void draw_stream(int kind, int p) {
    const int far = sizeof(REAL) == 8 ? 500 : 50; /* squares overflow, and vanish */
    for (int i = 0; i < ROWS; i++) {
        REAL *x = gradients + i * p;
        int hot = draw_below(p), copied = draw_below(3);
        for (int j = 0; j < p; j++) {
            double number = draw_number();
            if (kind == 1) number = ldexp(number, -(j % 30) / 2);
            if (kind == 2 && i && copied == 0) number = (double)x[j - p];
            if (kind == 3) number = (j == i % p ? ldexp(number, -12) : 0) + 1.0 / (j + 1);
            if (kind == 4) number = j == hot ? number : 0;
            if (kind == 5) number += 14;
            if (kind == 6) number = ldexp(number, i % 5 < 2 ? (i % 5 ? 1 : -1) * far : i % 40 - 20);
            x[j] = (REAL)number;
        }
        roots[i] = (SMALL)(1 + copied * 0.5);
        for (int h = 0; h < HEADS; h++) labels[i * HEADS + h] = (SMALL)draw_number();
    }
}

static Rows take_rows(int p, int heads, int weighted) {
    Rows rows = {0, ROWS, p, gradients, NULL, labels, weighted ? roots : NULL, ROWS};
    for (int i = 0; i < ROWS; i++)
        for (int h = 0; h < heads; h++) labels[i * heads + h] = labels[i * HEADS + h];
    return rows;
}

static Results take_outputs(void) {
    SMALL(*o)[ROWS * HEADS] = outputs;
    Results out = {o[0], o[1], o[2], o[3], o[4], o[5], o[6]};
    return out;
}

static uint64_t hash_outputs(uint64_t hash, int heads) {
    for (int i = 0; i < 7; i++) HASH(outputs[i], ROWS * (i < 3 ? heads : 1));
    return hash;
}

static void print(const char *name, uint64_t hash) {
    printf("%d-%d %s %016llx\n", (int)sizeof(REAL), (int)sizeof(SMALL), name,
           (unsigned long long)hash);
}

static void check_learner(int kind, int candidates, int p, int m, int setting) {
    static const char *KINDS[] = {"principal", "latest", "random", "unlimited", "nothing"};
    int heads = setting % 2 ? HEADS : 1, old = kind == PRINCIPAL || kind == NOTHING || !candidates;
    uint64_t hash = 0;
    char name[99];
    for (int stream = 0; stream < STREAMS; stream++) {
        Basis b = {0};
        Rows rows;
        Results out = take_outputs();
        int64_t code;
        draw_stream(stream, p);
        rows = take_rows(p, heads, setting >= 2);
        b.parameters = p;
        b.kind = kind;
        b.most = kind == UNLIMITED ? ROWS : kind == NOTHING ? 0 : m;
        b.capacity = kind == UNLIMITED ? ROWS + 1 : m + 12;
        b.scores.heads = heads;
        b.scores.candidates = candidates ? candidates : 1;
        b.linear = setting != 3;
        b.is_noisy = candidates > 0;
        b.chosen = candidates / 2;
        b.seed = 5;
        b.forgetting = old && setting == 2 ? (SMALL)0.9 : 1;
        b.drift = kind == PRINCIPAL && candidates == 1 && setting == 3 ? (SMALL)0.01 : 0;
        b.has_history = !candidates || (kind != PRINCIPAL && kind != UNLIMITED);
        place_learner(&b);
        for (int c = 0; c < b.scores.candidates; c++) {
            b.noise[c] = candidates ? (SMALL)(candidates == 1 ? 0.125 : ldexp(1, 3 * c - 12)) : 0;
            b.tailed[c] = 1;
        }
        if (learn_rows(&b, &rows, &out, &code) != ROWS) printf("code %d\n", (int)code);
        copy_parameters(&b, b.base);
        hash = hash_outputs(hash ^ hash_learner(&b), heads);
        release_all();
    }
    snprintf(name, sizeof(name), "%s-%d-%d-%d-%d", KINDS[kind], candidates, p, m, setting);
    print(name, hash);
}

static void check_filter(int p, int setting) {
    uint64_t hash = 0;
    char name[99];
    for (int stream = 0; stream < STREAMS; stream++) {
        Dense q = {0};
        Rows rows;
        Results out = take_outputs();
        SMALL drift = (SMALL)0.01;
        int64_t code, done;
        draw_stream(stream, p);
        rows = take_rows(p, 1, 0);
        q.parameters = p;
        q.scores.heads = 1;
        q.linear = 1;
        q.noise = setting == 1 ? 0 : (SMALL)0.25;
        q.forgetting = setting == 2 ? (SMALL)0.96875 : 1;
        q.moves = setting == 3;
        place_filter(&q);
        if (setting == 3) {
            q.drift_kind = NUMBER;
            q.drift = &drift;
        }
        done = learn_dense_rows(&q, &rows, &out, &code);
        HASH(&done, 1);
        HASH(&code, 1);
        hash = hash_outputs(hash ^ hash_filter(&q), 1);
        release_all();
    }
    snprintf(name, sizeof(name), "%s-%d", "dense", 10 * p + setting);
    print(name, hash);
}

int main(void) {
    static const int CANDIDATES[] = {0, 1, 8};
    for (int kind = PRINCIPAL; kind <= NOTHING; kind++)
        for (int e = 0; e < 3; e++)
            for (int setting = 0; setting < 4; setting++) {
                check_learner(kind, CANDIDATES[e], 21, 6, setting);
                if (setting == 0) check_learner(kind, CANDIDATES[e], MOST_PARAMETERS, 9, setting);
            }
    for (int setting = 0; setting < 4; setting++) check_filter(21, setting);
    return 0;
}
