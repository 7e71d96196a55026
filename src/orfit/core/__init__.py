"""The small algebra of a row, in C: `core.c` and its wrapper `_core.pyx`."""
