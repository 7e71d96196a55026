/* Running means of the innovations of each candidate of the noise.
 *
 * u = r / sqrt(S), scale = the mean of u^2. No u^2 counts more than FAR times the scale so far:
 * otherwise one bad reading would widen every interval for a thousand rows. */
#include "tail.c"

#define RECENCY ((SMALL)3)   /* a mean weighs row i of n by about (i / n)^(RECENCY - 1) */
#define WINDOW ((SMALL)1000) /* rows; never longer than that, so that a stream may change */
#define RECENT ((SMALL)100)  /* rows, of the means that are compared with those */
#define FAR ((SMALL)25)      /* five standard deviations: normal noise is not affected */
#define MOST_SURPRISE ((SMALL)1e3)
#define LARGEST_INNOVATION ((SMALL)(sizeof(SMALL) == 8 ? 1e140 : 1e15))

/* min(1, max(RECENCY / rows, 1 / window)) */
static SMALL find_rate(SMALL rows, SMALL window) {
    SMALL rate = RECENCY / rows;
    if (rate < 1 / window) rate = 1 / window;
    return rate < 1 ? rate : 1;
}

static SMALL clip(SMALL x, SMALL limit) { return x > limit ? limit : x < -limit ? -limit : x; }

/* Update the means of all candidates by one gradient. innovation: candidates x heads. */
API void update_scores(Scores *s, const SMALL *noise, const SMALL *variance, const SMALL *innovation) {
    SMALL rate, recent;
    s->rows++;
    rate = find_rate((SMALL)s->rows, WINDOW);
    recent = find_rate((SMALL)s->rows, RECENT);
    for (int c = 0; c < s->candidates; c++) {
        SMALL excess = variance[c];
        if (noise[0] > 0) excess = variance[c] / noise[c];
        if (noise[0] > 0 && !(excess < MOST_SURPRISE)) excess = MOST_SURPRISE;
        if (!(excess < LARGEST_ENERGY)) excess = LARGEST_ENERGY;
        s->surprise[c] += recent * (excess - s->surprise[c]);
    }
    for (int j = 0; j < s->candidates * s->heads; j++) {
        SMALL u = clip(innovation[j], LARGEST_INNOVATION), limit = (SMALL)sqrt(FAR * s->scale[j]);
        if (limit > 0) u = clip(u, limit);
        s->scale[j] += rate * (u * u - s->scale[j]);
        s->recent_scale[j] += recent * (u * u - s->recent_scale[j]);
        s->neighbours[j] += recent * (u * s->last[j] - s->neighbours[j]);
        s->last[j] = u;
    }
}
