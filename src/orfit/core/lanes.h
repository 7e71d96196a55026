/* Vectors as wide as the target's registers, and the number types.
 *
 * REAL is the type of rows of p numbers, SMALL that of the small algebra: double and double, float and
 * double, or, on a controller, float and float. WIDTH numbers of type SMALL form one `Lanes`. WIDTH is
 * 8, 4 or 2, and 1 with -DORFIT_PLAIN, which needs no extension of C. No result may depend on WIDTH:
 * every sum has eight accumulators, which are added in one order (`add_lanes`). */
#ifndef ORFIT_LANES_H
#define ORFIT_LANES_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef REAL
#define REAL double
#define SMALL double
#endif
#ifndef SMALL
#define SMALL double
#endif

#define IS_FLOAT (sizeof(SMALL) == sizeof(float))
#define EPS ((SMALL)(IS_FLOAT ? 0x1p-23 : 0x1p-52)) /* from 1 to the next number */

#ifdef ORFIT_TEST
#define API          /* tests call every function of the core */
#else
#define API static
#endif

#if defined(ORFIT_PLAIN)
#define WIDTH 1
#elif defined(__AVX512F__)
#define WIDTH 8
#elif defined(__AVX__)
#define WIDTH 4
#else
#define WIDTH 2
#endif

#if defined(ORFIT_PLAIN)
#define TARGET_NAME "plain"
#elif defined(__AVX512F__)
#define TARGET_NAME "x86-64-v4"
#elif defined(__AVX2__)
#define TARGET_NAME "x86-64-v3"
#elif defined(__x86_64__)
#define TARGET_NAME "x86-64"
#elif defined(__aarch64__)
#define TARGET_NAME "aarch64"
#else
#define TARGET_NAME "generic"
#endif

#define LANES 8               /* accumulators of a sum */
#define PARTS (LANES / WIDTH) /* vectors that hold them */
#define PADDED(n) (((n) + LANES - 1) / LANES * LANES)

#if defined(ORFIT_PLAIN)
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif
INLINE SMALL absolute(SMALL a) { return (SMALL)fabs(a); }

#if defined(ORFIT_PLAIN)
#define UNROLL
typedef SMALL Lanes;
typedef int64_t Mask;
INLINE Lanes splat(SMALL a) { return a; }
INLINE Lanes load(const SMALL *a) { return *a; }
INLINE Lanes load_unaligned(const SMALL *a) { return *a; }
INLINE Lanes load_real(const REAL *a) { return (SMALL)*a; }
INLINE void store(SMALL *a, Lanes x) { *a = x; }
INLINE void store_real(REAL *a, Lanes x) { *a = (REAL)x; }
INLINE Mask less(Lanes a, Lanes b) { return -(Mask)(a < b); }
INLINE Mask at_most(Lanes a, Lanes b) { return -(Mask)(a <= b); }
INLINE Mask equal(Lanes a, Lanes b) { return -(Mask)(a == b); }
INLINE Lanes pick(Mask mask, Lanes yes, Lanes no) { return mask ? yes : no; }
INLINE Lanes magnitude(Lanes a) { return (SMALL)fabs(a); }
INLINE Lanes square_root(Lanes a) { return (SMALL)sqrt(a); }
INLINE int any(Mask mask) { return mask != 0; }
INLINE Lanes count_from(int first) { return (SMALL)first; }
INLINE SMALL add_lanes(const Lanes *x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
INLINE SMALL multiply_lanes(const Lanes *x) {
    return ((x[0] * x[4]) * (x[2] * x[6])) * ((x[1] * x[5]) * (x[3] * x[7]));
}

#else
#define UNROLL _Pragma("GCC unroll 32")
typedef SMALL Lanes __attribute__((vector_size(WIDTH * sizeof(SMALL)), may_alias));
typedef SMALL UnalignedLanes
    __attribute__((vector_size(WIDTH * sizeof(SMALL)), aligned(sizeof(SMALL)), may_alias));
typedef REAL RealLanes __attribute__((vector_size(WIDTH * sizeof(REAL)), may_alias));
/* Comparisons give all bits or none in each lane, in integers as wide as SMALL. */
typedef __typeof__((Lanes){0} < (Lanes){0}) Mask;

INLINE Lanes splat(SMALL a) { return a - (Lanes){0}; }
INLINE Lanes load(const SMALL *a) { return *(const Lanes *)a; }
INLINE Lanes load_unaligned(const SMALL *a) { return *(const UnalignedLanes *)a; }
INLINE Lanes load_real(const REAL *a) {
    return __builtin_convertvector(*(const RealLanes *)a, Lanes);
}
INLINE void store(SMALL *a, Lanes x) { *(Lanes *)a = x; }
INLINE void store_real(REAL *a, Lanes x) {
    *(RealLanes *)a = __builtin_convertvector(x, RealLanes);
}
INLINE Mask less(Lanes a, Lanes b) { return a < b; }
INLINE Mask at_most(Lanes a, Lanes b) { return a <= b; }
INLINE Mask equal(Lanes a, Lanes b) { return a == b; }
INLINE Lanes pick(Mask mask, Lanes yes, Lanes no) {
    return (Lanes)((mask & (Mask)yes) | (~mask & (Mask)no));
}
INLINE Lanes magnitude(Lanes a) { return (Lanes)((Mask)a & ~(Mask)splat((SMALL)-0.0)); }
INLINE Lanes square_root(Lanes a) {
    Lanes r = {0};
    UNROLL for (int l = 0; l < WIDTH; l++) r[l] = (SMALL)sqrt(a[l]);
    return r;
}
INLINE int any(Mask mask) {
    __typeof__(mask[0]) r = 0;
    UNROLL for (int l = 0; l < WIDTH; l++) r |= mask[l];
    return r != 0;
}
INLINE Lanes count_from(int first) {
    Lanes r = {0};
    UNROLL for (int l = 0; l < WIDTH; l++) r[l] = (SMALL)(first + l);
    return r;
}
/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) of the eight lanes of PARTS vectors. */
INLINE SMALL add_lanes(const Lanes *x) {
    SMALL a[LANES] __attribute__((aligned(64)));
    UNROLL for (int h = 0; h < PARTS; h++) store(a + h * WIDTH, x[h]);
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}
INLINE SMALL multiply_lanes(const Lanes *x) {
    SMALL a[LANES] __attribute__((aligned(64)));
    UNROLL for (int h = 0; h < PARTS; h++) store(a + h * WIDTH, x[h]);
    return ((a[0] * a[4]) * (a[2] * a[6])) * ((a[1] * a[5]) * (a[3] * a[7]));
}
#endif
#endif
