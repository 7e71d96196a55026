/* The build defines TARGETS as a list such as TARGET(v4) TARGET(v3) TARGET(base), best first. */
#include "dispatch.h"

#define TARGET(name) extern const struct Core orfit_f64_##name, orfit_f32_##name;
TARGETS
#undef TARGET

/* Features that the options of a target in setup.py allow the compiler to use. */
#if defined(__x86_64__)
#define HAS(feature) (__builtin_cpu_supports(feature) != 0)
#define CAN_RUN_v3 (HAS("avx") && HAS("avx2") && HAS("bmi") && HAS("bmi2") && HAS("fma"))
#define CAN_RUN_v4 \
    (CAN_RUN_v3 && HAS("avx512f") && HAS("avx512bw") && HAS("avx512cd") && HAS("avx512dq") && \
     HAS("avx512vl"))
#endif
#define CAN_RUN_base 1
#define CAN_RUN_plain 1

const struct Core *select_core(int is_float) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
#define TARGET(name) \
    if (CAN_RUN_##name) return is_float ? &orfit_f32_##name : &orfit_f64_##name;
    TARGETS
    return NULL;
}
