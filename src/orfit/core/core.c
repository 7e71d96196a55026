/* The core in one translation unit: the compiler inlines its functions, and only TABLE is exported. */
#include "core.h"

static int64_t size_of_basis(void) { return (int64_t)sizeof(Basis); }

const struct Core TABLE = {
    .target = TARGET_NAME,
    .size_of_basis = size_of_basis,
};
