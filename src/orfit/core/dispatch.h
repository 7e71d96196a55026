/* Selection of the core's object file for this processor. */
#ifndef ORFIT_DISPATCH_H
#define ORFIT_DISPATCH_H
#include "core.h"

/* The functions for rows of double (is_float = 0) or float (1); NULL if no target fits. The tables
 * of both have one layout, since only the types that pointers refer to differ. Call this once: it
 * is slow on a virtual machine. */
const struct Core *select_core(int is_float);

#endif
