/* The build defines TARGETS as a list such as TARGET(v4) TARGET(v3) TARGET(base), best first. */
#include "dispatch.h"

#define TARGET(name) extern const struct Core orfit_f64_##name, orfit_f32_##name;
TARGETS
#undef TARGET

#if defined(__x86_64__) && !defined(ORFIT_PLAIN)
#include <cpuid.h>

enum { BASE, V3, V4 };

/* The highest of the levels of x86-64 that setup.py compiles for, if the processor has its features
 * and the operating system saves its registers. (Clang's __builtin_cpu_supports needs a library
 * that zig lacks.) */
static int find_level(void) {
    const unsigned v3 = bit_AVX2 | bit_BMI | bit_BMI2;
    const unsigned v4 = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    const unsigned leaf_1 = bit_AVX | bit_FMA | bit_OSXSAVE, ymm = 0x06, zmm = 0xe6;
    unsigned a, b, c, d, saved, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf_1) != leaf_1) return BASE;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & v3) != v3) return BASE;
    __asm__("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0));
    if ((saved & ymm) != ymm) return BASE;
    return (b & v4) == v4 && (saved & zmm) == zmm ? V4 : V3;
}
#else
enum { BASE };
static int find_level(void) { return BASE; }
#endif

#define NEEDS_v4 V4
#define NEEDS_v3 V3
#define NEEDS_base BASE
#define NEEDS_plain BASE

const struct Core *select_core(int is_float) {
    const int level = find_level();
#define TARGET(name) \
    if (level >= NEEDS_##name) return is_float ? &orfit_f32_##name : &orfit_f64_##name;
    TARGETS
    return NULL;
}
