# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The C core as Python objects: rows in C, the lock of a learner, and what a row returns.

No arithmetic is done here. `Rows` passes arguments of the common kind to the core, and returns None
for all others, which the caller converts first.
"""

import math
import threading
import time

import numpy

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memcpy, memset, strcmp

cdef const Core *CORES[2]
CORES[0], CORES[1] = select_core(0), select_core(1)
if CORES[0] == NULL or CORES[1] == NULL:
    raise ImportError("orfit was compiled for another processor: install it again on this machine")

CODES = {
    "BAD_GRADIENT": BAD_GRADIENT, "BAD_PREDICTION": BAD_PREDICTION, "TOO_LARGE": TOO_LARGE,
    "NEEDS_ROOM": NEEDS_ROOM, "NEEDS_LIMIT": NEEDS_LIMIT,
}
ctypedef int (*row_function)(void *, const Row *) noexcept nogil
ctypedef int64_t (*rows_function)(void *, const CRows *, const Results *, int64_t *) noexcept nogil

cdef object ndarray = numpy.ndarray
cdef object empty = numpy.empty
cdef object float64 = numpy.float64, float32 = numpy.float32
cdef int64_t LONG = 500_000  # numbers that are read in about 50 us: then the GIL is released
cdef int64_t PAUSE = 50_000_000  # numbers between two looks at signals, less than 20 ms


def target():
    """The target for which the running code was compiled, such as "x86-64-v3"."""
    return CORES[0].target.decode()


# Threads that run rows without the GIL; a fork waits until there are none.
cdef int running = 0
cdef bint is_forking = False


def wait_before_fork():
    """Wait until no thread is in the middle of a row."""
    global is_forking
    is_forking = True
    while running:
        time.sleep(0.0002)


def continue_after_fork():
    """Let rows run again."""
    global is_forking
    is_forking = False


cdef class Lock:
    """A re-entrant lock that the core can examine without a call.

    A row that keeps the GIL needs no lock; it only has to know that no thread holds it.
    """

    cdef object lock
    cdef unsigned long owner
    cdef int depth

    def __cinit__(self):
        self.lock = threading.Lock()

    def __enter__(self):
        cdef unsigned long me = PyThread_get_thread_ident()
        if self.depth == 0 or self.owner != me:
            self.lock.acquire()
            self.owner = me
        self.depth += 1
        return True

    def __exit__(self, *exception):
        self.depth -= 1
        if self.depth == 0:
            self.lock.release()

    def is_owned(self):
        """Whether this thread holds the lock."""
        return self.depth > 0 and self.owner == PyThread_get_thread_ident()

    def reset(self):
        """Unlock, in a process that was forked while another thread held the lock."""
        self.lock, self.depth = threading.Lock(), 0


cdef class Update:
    """The result of one step.

    prediction: f before the step. For `learn` a number or (c,), for `learn_batch` (n,) or (n, c).
    residual: y − prediction.
    step: |Δw|.
    novelty: |G̃| / |G|, the share of the gradient that the memory did not span.
    conflict: what the step left of the residual (in the linearised model), shaped like it. With
        noise = 0 it is zero unless the past, or the block itself, contradicts y; with noise > 0
        it is what noise explains.
    rank: how many directions the memory holds now.
    variance: gᵀPg + R before the step, which learner.scale times is what residual² was expected to
        be: a number for each gradient, so the same for all heads. NaN where a learner has no P.

    Examples:
        >>> update = orfit.ORFit(orfit.Linear(2)).learn([3.0, 4.0], 10.0)
        >>> print(update.prediction, update.residual, update.step, update.novelty, update.rank)
        0.0 10.0 2.0 1.0 1
    """

    cdef public object prediction, residual, conflict, variance
    cdef public double step, novelty
    cdef public int64_t rank

    def __init__(self, prediction, residual, step, novelty, conflict, rank, variance=math.nan):
        self.prediction, self.residual, self.conflict = prediction, residual, conflict
        self.step, self.novelty, self.rank, self.variance = step, novelty, rank, variance

    def __repr__(self):
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in FIELDS)
        return f"Update({values})"

    def __reduce__(self):
        return Update, tuple(getattr(self, name) for name in FIELDS)


FIELDS = ("prediction", "residual", "step", "novelty", "conflict", "rank", "variance")


cdef object array_of(const double *numbers, int64_t count):
    """A copy as a NumPy array."""
    cdef Py_buffer view
    made = empty(count)
    PyObject_GetBuffer(made, &view, PyBUF_WRITABLE)
    memcpy(view.buf, numbers, count * sizeof(double))
    PyBuffer_Release(&view)
    return made


cdef int open_all(tuple arrays, Py_buffer *views, int flags=PyBUF_ND) except -1:
    """Open contiguous arrays, but None; the caller releases the views. Returns how many there are."""
    cdef int count = 0
    for array in arrays:
        if array is not None:
            PyObject_GetBuffer(array, &views[count], flags)
            count += 1
    return count


cdef void close_all(Py_buffer *views, int count):
    cdef int i
    for i in range(count):
        PyBuffer_Release(&views[i])


cdef class Rows:
    """The numbers of a learner in the form in which the core learns rows.

    struct: a NumPy array whose memory is a `Basis` or `Dense` of core.h; `place` sets its pointers.
    is_ready: whether `learn` may be called with what a user passed. is_plain: whether `predict` may,
        because inputs are gradients. The other methods hold the lock.
    """

    cdef const Core *core
    cdef void *state
    cdef Basis *basis
    cdef Dense *dense
    cdef Result *result
    cdef Scores *scores
    cdef int64_t *rank
    cdef int64_t *chosen
    cdef int64_t *seen_rows
    cdef row_function learn_one, predict_one
    cdef rows_function learn_many
    cdef int64_t given, work
    cdef public object struct, exported
    cdef readonly Lock lock
    cdef public bint is_ready, is_plain, has_heads
    cdef bint is_float
    cdef Py_buffer memory

    cdef open(self, struct, lock, is_float, has_heads, int64_t size):
        self.struct, self.lock, self.is_float, self.has_heads = struct, lock, is_float, has_heads
        PyObject_GetBuffer(struct, &self.memory, PyBUF_WRITABLE)
        self.state = self.memory.buf
        if self.memory.len != size:
            raise ValueError(f"the struct has {size} bytes, its description {self.memory.len}")

    def open_basis(self, struct, lock, is_float, has_heads):
        """Use a `Basis` whose sizes and settings are set; the strides are set here."""
        self.core = CORES[1] if is_float else CORES[0]
        self.open(struct, lock, is_float, has_heads, self.core.basis_bytes)
        cdef Basis *b = <Basis *>self.state
        self.basis, self.result, self.scores = b, &b.result, &b.scores
        self.rank, self.chosen, self.seen_rows = &b.rank, &b.chosen, &b.seen
        self.learn_one = <row_function>self.core.learn_row
        self.predict_one = <row_function>self.core.predict_row
        self.learn_many = <rows_function>self.core.learn_rows
        self.core.size_basis(b)
        self.given, self.work = b.parameters - b.bias, b.capacity * b.stride

    def open_dense(self, struct, lock, is_float, has_heads):
        """Use a `Dense` whose sizes and settings are set."""
        self.core = CORES[1] if is_float else CORES[0]
        self.open(struct, lock, is_float, has_heads, self.core.dense_bytes)
        cdef Dense *q = <Dense *>self.state
        self.dense, self.result, self.scores = q, &q.result, &q.scores
        self.rank, self.chosen, self.seen_rows = &q.rank, &q.chosen, &q.seen
        self.learn_one = <row_function>self.core.learn_dense_row
        self.predict_one = <row_function>self.core.predict_dense_row
        self.learn_many = <rows_function>self.core.learn_dense_rows
        self.given, self.work = q.parameters - q.bias, q.parameters * q.parameters

    def __dealloc__(self):
        if self.state != NULL:
            PyBuffer_Release(&self.memory)

    @property
    def seen(self):
        """How many rows have been learned."""
        return self.seen_rows[0]

    def place(self, address):
        """Place the learner's numbers in a block of zeros; at 0, return how many bytes it needs."""
        if self.dense != NULL:
            return self.core.place_dense(self.dense, <char *><uintptr_t>address)
        return self.core.place_basis(self.basis, <char *><uintptr_t>address)

    def place_scratch(self, address):
        """The same for the scratch space of a `Basis`."""
        return self.core.place_scratch(self.basis, <char *><uintptr_t>address)

    def copy_parameters(self, out):
        """Write w to an array of the learner's dtype, columns×p padded as the rows are."""
        cdef Py_buffer view
        PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
        if self.dense != NULL:
            self.core.copy_dense_parameters(self.dense, view.buf)
        else:
            self.core.copy_parameters(self.basis, view.buf)
        PyBuffer_Release(&view)

    def advance(self, w, influence):
        """One step in time of a `Dense`, to w or to A w + influence; returns the code."""
        cdef Py_buffer v
        PyObject_GetBuffer(influence if w is None else w, &v, PyBUF_ND)
        self.exported = None
        if w is None:
            code = self.core.advance_dense(self.dense, NULL, <double *>v.buf)
        else:
            code = self.core.advance_dense(self.dense, v.buf, NULL)
        PyBuffer_Release(&v)
        return code

    cdef bint may_run(self):
        """Whether no thread holds the lock, so that a row may run while this one has the GIL."""
        return self.lock.depth == 0

    cdef int open_vector(self, object array, Py_buffer *view, int64_t count, bint real):
        """Open a contiguous array of so many numbers; returns 0 if it is of another kind."""
        cdef const char *kind = b"f" if real and self.is_float else b"d"
        if type(array) is not ndarray:
            return 0
        try:
            PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_ND)
        except (BufferError, ValueError):  # not contiguous, or of a dtype without a format
            return 0
        if view.ndim == 1 and view.shape[0] == count and strcmp(view.format, kind) == 0:
            return 1
        PyBuffer_Release(view)
        return 0

    def learn(self, x, y):
        """Learn what a user passed; None if it is of another kind, or if the row is refused."""
        cdef Py_buffer inputs, labels
        cdef double label = 0
        cdef int code
        cdef Row row
        if not self.is_ready or not self.may_run():
            return None
        if self.has_heads:
            if not self.open_vector(y, &labels, self.scores.heads, False):
                return None
            row.label = <double *>labels.buf
        else:
            if not isinstance(y, float):
                return None
            label = y
            row.label = &label
        row.offset = NULL
        row.weight_root = 1
        code = BAD_GRADIENT
        if self.open_vector(x, &inputs, self.given, True):
            row.gradient = inputs.buf
            if self.work < LONG:
                code = self.learn_one(self.state, &row)
            else:
                code = self.learn_without_gil(&row)
            PyBuffer_Release(&inputs)
        if self.has_heads:
            PyBuffer_Release(&labels)
        return self.update() if code == DONE else None

    def predict(self, x):
        """The prediction for what a user passed; None if it is of another kind, or takes long."""
        cdef Py_buffer inputs
        cdef Row row
        cdef int64_t heads = self.scores.heads
        cdef double *found = self.result.prediction + self.chosen[0] * heads
        if not self.is_plain or self.work >= LONG or not self.may_run():
            return None
        if not self.open_vector(x, &inputs, self.given, True):
            return None
        row.gradient, row.weight_root = inputs.buf, 1
        code = self.predict_one(self.state, &row)
        PyBuffer_Release(&inputs)
        if code != DONE:
            return None
        if self.has_heads:
            made = array_of(found, heads)
            return made.astype(float32) if self.is_float else made
        return float32(found[0]) if self.is_float else float64(found[0])

    cdef int learn_without_gil(self, const Row *row) except -1:
        global running
        cdef int code = DONE
        with self.lock:
            while is_forking:
                time.sleep(0.0002)
            running += 1
            with nogil:
                code = self.learn_one(self.state, row)
            running -= 1
        return code

    cdef object update(self):
        """The `Update` of the last row."""
        cdef Update made = Update.__new__(Update)
        cdef Result *r = self.result
        cdef int64_t heads = self.scores.heads, c = self.chosen[0], first = c * heads
        self.exported = None
        if self.has_heads:
            made.prediction = array_of(r.prediction + first, heads)
            made.residual = array_of(r.residual + first, heads)
            made.conflict = array_of(r.left + first, heads)
        else:
            made.prediction = r.prediction[first]
            made.residual = r.residual[first]
            made.conflict = r.left[first]
        made.variance = r.variance[c]
        made.step, made.novelty, made.rank = r.length[c], r.novelty, self.rank[0]
        return made

    def learn_gradient(self, gradient, offset, labels, double weight_root, w=None):
        """Learn one gradient of the learner's dtype; returns the `Update`, or the code of a refusal.

        gradient: p numbers, or p - 1 with a bias. offset (or None), labels: float64, of each head.
        w: after a step in time that comes first, by the A of the struct.
        """
        cdef Py_buffer v[4]
        cdef Row row
        cdef int code, count = open_all((gradient, labels, offset, w), v)
        row.gradient, row.label = v[0].buf, <double *>v[1].buf
        row.offset = <double *>v[2].buf if offset is not None else NULL
        row.weight_root = weight_root
        if w is not None:
            code = self.core.learn_dense_row_later(self.dense, v[count - 1].buf, &row)
        elif self.work < LONG:
            code = self.learn_one(self.state, &row)
        else:
            code = self.learn_without_gil(&row)
        close_all(v, count)
        return self.update() if code == DONE else code

    def learn_each(self, gradients, offsets, labels, outputs, int64_t first):
        """Learn gradients from `first` on; returns the place of the next one, and the code of its
        refusal or 0.

        gradients: n×p. offsets (or None), labels: n×heads. outputs: arrays for prediction, residual
        and conflict (n×heads), variance, step, novelty and rank (n). Signals are handled between rows.
        """
        global running
        cdef Py_buffer v[10]
        cdef CRows rows
        cdef Results out
        cdef int64_t code = DONE, end
        cdef int count = open_all((gradients, labels, *outputs, offsets), v)
        rows.stride, end = v[0].shape[1], v[0].shape[0]
        rows.gradients, rows.labels, rows.weight_roots = v[0].buf, <double *>v[1].buf, NULL
        rows.offsets = <double *>v[9].buf if offsets is not None else NULL
        out.prediction, out.residual, out.left = <double *>v[2].buf, <double *>v[3].buf, <double *>v[4].buf
        out.variance, out.length = <double *>v[5].buf, <double *>v[6].buf
        out.novelty, out.rank = <double *>v[7].buf, <double *>v[8].buf
        rows.first, rows.count = first, end
        try:
            while rows.first < end and code == DONE:
                rows.stop = min(end, rows.first + max(1, PAUSE // max(self.work, 10_000)))
                self.exported = None
                while is_forking:
                    time.sleep(0.0002)
                if (rows.stop - rows.first) * max(self.work, 10_000) < LONG:
                    rows.first = self.learn_many(self.state, &rows, &out, &code)
                    continue
                running += 1
                with nogil:
                    rows.first = self.learn_many(self.state, &rows, &out, &code)
                running -= 1
                PyErr_CheckSignals()
        finally:
            close_all(v, count)
        return rows.first, code


def learn_fleet(list fleet, owners, gradients, labels, predictions, codes):
    """Learn each row by the `Rows` of its owner.

    owners: n int64. gradients: n×p. labels, predictions: n×heads. codes: int64, the code of the first
    row that an owner refused; its later rows are left out.
    """
    cdef Py_buffer v[5]
    cdef Rows rows
    cdef Row row
    cdef int64_t i, owner, heads, size
    cdef int64_t *refused
    open_all((owners, gradients, codes, labels, predictions), v)
    refused = <int64_t *>v[2].buf
    size = v[1].shape[1] * v[1].itemsize
    heads = v[3].len // 8 // max(1, v[0].shape[0])
    row.offset, row.weight_root = NULL, 1
    for i in range(v[0].shape[0]):
        owner = (<int64_t *>v[0].buf)[i]
        if refused[owner] == DONE:
            rows = <Rows>fleet[owner]
            row.gradient = <const void *>(<const char *>v[1].buf + i * size)
            row.label = <double *>v[3].buf + i * heads
            refused[owner] = rows.learn_one(rows.state, &row)
            rows.exported = None
            if refused[owner] == DONE:
                memcpy(<double *>v[4].buf + i * heads, rows.result.prediction, heads * 8)
    close_all(v, 5)


def extend_tail(floors, level, dropped, double rows, double dropping, energies, double least,
                double unkept):
    """Update the tail's level and dropped energy of each candidate (tail.c), in place."""
    cdef Py_buffer v[4]
    open_all((floors, level, dropped, energies), v)
    CORES[0].extend_tail(v[0].shape[0], <double *>v[0].buf, <double *>v[1].buf, <double *>v[2].buf,
                         rows, dropping, <double *>v[3].buf, v[3].shape[0], least, unkept)
    close_all(v, 4)


def update_scores(rows, noises, variance, innovation, scale, recent_scale, neighbours, last, surprise):
    """Update the means of all candidates by gradients in order (candidates.c), in place.

    variance: n×candidates. innovation: n×candidates×heads. Returns the new number of rows.
    """
    cdef Py_buffer v[8]
    cdef Scores s
    cdef int64_t i, columns
    open_all((noises, variance, innovation, scale, recent_scale, neighbours, last, surprise), v)
    columns = v[3].shape[0]
    s.rows, s.candidates, s.heads = rows, v[0].shape[0], columns // v[0].shape[0]
    s.scale, s.recent_scale = <double *>v[3].buf, <double *>v[4].buf
    s.neighbours, s.last, s.surprise = <double *>v[5].buf, <double *>v[6].buf, <double *>v[7].buf
    for i in range(v[1].shape[0]):
        CORES[0].update_scores(&s, <double *>v[0].buf, <double *>v[1].buf + i * s.candidates,
                               <double *>v[2].buf + i * columns)
    close_all(v, 8)
    return s.rows


def draw(int64_t seed, int64_t draws, int64_t count):
    """A number from 0 to count - 1 that the seed and the number of draws determine."""
    return CORES[0].draw(seed, draws, count)


# BLAS of SciPy, called directly: its Python functions copy arrays whose columns are padded.
ctypedef void (*gemm_type)(char *, char *, int *, int *, int *, void *, void *, int *, void *, int *,
                           void *, void *, int *) noexcept nogil
ctypedef void (*gemv_type)(char *, int *, int *, void *, void *, int *, void *, int *, void *, void *,
                           int *) noexcept nogil

cdef gemm_type DGEMM = NULL, SGEMM
cdef gemv_type DGEMV, SGEMV


cdef void *blas(library, name) except NULL:
    capsule = library.__pyx_capi__[name]
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))


cdef int find_blas() except -1:
    """Find the functions at the first product: rows in the core need no SciPy."""
    global DGEMM, SGEMM, DGEMV, SGEMV
    from scipy.linalg import cython_blas

    SGEMM = <gemm_type>blas(cython_blas, "sgemm")
    DGEMV, SGEMV = <gemv_type>blas(cython_blas, "dgemv"), <gemv_type>blas(cython_blas, "sgemv")
    DGEMM = <gemm_type>blas(cython_blas, "dgemm")


cdef int open_matrix(object array, Py_buffer *view) except -1:
    """Open a matrix of contiguous columns; returns the distance of two columns in numbers."""
    PyObject_GetBuffer(array, view, PyBUF_STRIDES)
    if view.shape[1] < 2:
        return max(1, view.shape[0])
    return max(1, view.strides[1] // view.itemsize)


def gemm(double alpha, A, bint transposed, B, double beta, C):
    """C <- alpha A B + beta C, or with Aᵀ, for matrices of contiguous columns and one dtype."""
    if DGEMM == NULL:
        find_blas()
    cdef Py_buffer a, b, c
    cdef int lda = open_matrix(A, &a), ldb = open_matrix(B, &b), ldc = open_matrix(C, &c)
    cdef int m = c.shape[0], n = c.shape[1], k = b.shape[0], rows = a.shape[0], one = 1
    cdef bint is_double = c.itemsize == 8
    cdef float single_alpha = alpha, single_beta = beta
    cdef void *by = <void *>&alpha if is_double else <void *>&single_alpha
    cdef void *keep = <void *>&beta if is_double else <void *>&single_beta
    cdef char *form = b"T" if transposed else b"N"
    cdef gemm_type multiply = DGEMM if is_double else SGEMM
    cdef gemv_type multiply_vector = DGEMV if is_double else SGEMV
    cdef int columns = m if transposed else k
    if n == 1 and beta == 0:  # gemv may leave NaN
        memset(c.buf, 0, m * c.itemsize)
    if m and n:
        with nogil:
            if n == 1 and k:
                multiply_vector(form, &rows, &columns, by, a.buf, &lda, b.buf, &one, keep, c.buf, &one)
            elif n > 1:
                multiply(form, b"N", &m, &n, &k, by, a.buf, &lda, b.buf, &ldb, keep, c.buf, &ldc)
    PyBuffer_Release(&a)
    PyBuffer_Release(&b)
    PyBuffer_Release(&c)
    return C
