/* The tail: what was seen along each direction that is not kept, the same for all of them.
 *
 * It keeps the mean variance R / (kappa + e) of those directions, not their mean energy e: it is the
 * uncertainty of a prediction. It is the mean over as many directions as could hold the dropped energy
 * at the least energy that is kept; over more if kappa is small beside that, because then directions
 * of which little was seen contribute most. */
#include "compact.c"

#define LARGEST_ENERGY ((SMALL)(sizeof(SMALL) == 8 ? 1e300 : 1e36)) /* larger sums overflow */

/* log(1 + x) for x >= 0, within 2 eps: with 1 + x = 2^e (1 + f), s = f / (2 + f),
 * log(1 + f) = 2 (s + s^3 / 3 + s^5 / 5 + ...), |s| < 0.172. */
API SMALL log_one_plus(SMALL x) {
    static const SMALL LOG_2 = (SMALL)0.693147180559945309417;
    SMALL u = 1 + x, f, s, square, series = 0;
    int e;
    if (u == 1) return x;
    if (!(u <= LARGEST_ENERGY)) u = x = LARGEST_ENERGY;
    f = (SMALL)frexp(u, &e);
    if (f < (SMALL)0.70710678118654752) {
        f *= 2;
        e--;
    }
    f -= 1;
    s = f / (2 + f);
    square = s * s;
    for (int i = 23; i >= 1; i -= 2) series = series * square + (SMALL)1 / (SMALL)i;
    return (SMALL)e * LOG_2 + (2 * s * series + (x - (u - 1)) / u); /* 1 + x was rounded to u */
}

/* Update the level of each candidate after `count` directions with these energies were dropped.
 * least: the least energy that is kept. unkept: how many directions are not kept. */
API void extend_tail(int candidates, const SMALL *floors, SMALL *level, SMALL *dropped, SMALL rows,
                     SMALL dropping, const SMALL *energies, int count, SMALL least, SMALL unkept) {
    for (int c = 0; c < candidates; c++) {
        SMALL before = level[c], floor = floors[c], spread, weight, variance;
        for (int j = 0; j < count; j++)
            if (energies[j] > before) dropped[c] += energies[j] - before;
        if (!(dropped[c] < LARGEST_ENERGY)) dropped[c] = LARGEST_ENERGY;
        spread = 2 * rows * (dropped[c] / dropping / least) * (1 + log_one_plus(least / floor));
        if (!(spread < unkept)) spread = unkept;
        weight = 1 / (spread > count ? spread : (SMALL)(count > 1 ? count : 1));
        variance = (1 - weight * (SMALL)count) / (floor + before);
        for (int j = 0; j < count; j++) variance += weight / (floor + energies[j]);
        level[c] = 1 / variance - floor;
        /* Nothing that was dropped had more energy than the least that is kept, but for rounding. */
        if (!(level[c] > 0)) level[c] = 0;
        if (level[c] > least) level[c] = least;
    }
}
