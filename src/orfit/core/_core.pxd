"""The C functions and structs that `_core.pyx` uses."""

from libc.stdint cimport int64_t

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()
    int PyErr_CheckSignals() except -1

cdef extern from "dispatch.h" nogil:
    ctypedef struct Row:
        const void *gradient
        const double *offset
        const double *label
        double weight_root

    ctypedef struct CRows "Rows":
        int64_t first, count, stride
        const void *gradients
        const double *offsets
        const double *labels
        const double *weight_roots
        int64_t stop

    ctypedef struct Result:
        double novelty
        double *prediction
        double *residual
        double *left
        double *variance
        double *length

    ctypedef struct Results:
        double *prediction
        double *residual
        double *left
        double *variance
        double *length
        double *novelty
        double *rank

    ctypedef struct Scores:
        int64_t heads, candidates, rows
        double *scale
        double *recent_scale
        double *neighbours
        double *last
        double *surprise

    ctypedef struct Basis:
        int64_t parameters, bias, chosen, capacity, stride, rank, seen
        Scores scores
        Result result

    ctypedef struct Dense:
        int64_t parameters, bias, chosen, stride, rank, seen
        Scores scores
        Result result

    ctypedef struct Core "struct Core":
        const char *target
        int64_t basis_bytes, dense_bytes
        void (*size_basis)(Basis *) noexcept nogil
        int64_t (*place_basis)(Basis *, char *) noexcept nogil
        int64_t (*place_scratch)(Basis *, char *) noexcept nogil
        int (*learn_row)(Basis *, const Row *) noexcept nogil
        int (*predict_row)(Basis *, const Row *) noexcept nogil
        int64_t (*learn_rows)(Basis *, const CRows *, const Results *, int64_t *) noexcept nogil
        void (*copy_parameters)(const Basis *, void *) noexcept nogil
        int64_t (*place_dense)(Dense *, char *) noexcept nogil
        int (*learn_dense_row)(Dense *, const Row *) noexcept nogil
        int (*predict_dense_row)(Dense *, const Row *) noexcept nogil
        int (*learn_dense_row_later)(Dense *, const void *, const Row *) noexcept nogil
        int64_t (*learn_dense_rows)(Dense *, const CRows *, const Results *, int64_t *) noexcept nogil
        int (*advance_dense)(Dense *, const void *, const double *) noexcept nogil
        void (*copy_dense_parameters)(const Dense *, void *) noexcept nogil
        void (*update_scores)(Scores *, const double *, const double *, const double *) noexcept nogil
        void (*extend_tail)(int, const double *, double *, double *, double, double, const double *,
                            int, double, double) noexcept nogil
        int64_t (*draw)(int64_t, int64_t, int64_t) noexcept nogil

    const Core *select_core(int is_float)
    enum: DONE, BAD_GRADIENT, BAD_PREDICTION, TOO_LARGE, NEEDS_ROOM, NEEDS_LIMIT
