/* How a label enters a row: the residual that the step has to explain. */
#include "candidates.c"

/* Gaussian noise: y - f. */
static SMALL find_residual(SMALL prediction, SMALL label) { return label - prediction; }
