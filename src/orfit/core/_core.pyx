# cython: language_level=3
"""The C core as Python objects."""

cdef extern from "dispatch.h":
    ctypedef struct Core "struct Core":
        const char *target
        long long (*size_of_basis)()

    const Core *select_core(int is_float)

cdef const Core *of_double = select_core(0)
cdef const Core *of_float = select_core(1)
if of_double == NULL or of_float == NULL:
    raise ImportError("orfit was compiled for another processor: install it again on this machine")


def target():
    """The target for which the running code was compiled, such as "x86-64-v3"."""
    return of_double.target.decode()


def layout():
    """The size of a Basis in bytes, for rows of double and of float."""
    return of_double.size_of_basis(), of_float.size_of_basis()
