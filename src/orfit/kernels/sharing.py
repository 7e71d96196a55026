"""What is shared among threads.

All of it goes through one parallel region, which calls a task by its address and knows nothing else
of it: numba takes seconds to compile a region, and what it calls is compiled into it once more.
"""

import contextlib
import os
import threading

from llvmlite import ir
from numba import (  # type: ignore[attr-defined]
    get_num_threads,
    njit,
    prange,
    threading_layer,
    types,
)
from numba.core import cgutils
from numba.extending import intrinsic

from orfit.kernels.settings import INNER, SETTINGS, START, compiled

PARALLEL = 1 << 16  # parameters above which threads pay

# A child has no threads but the one that forked. To wake the others would end it (OpenMP), or wait
# for ever.
left_behind = threading.Event()


def _in_child() -> None:
    with contextlib.suppress(ValueError):  # there were no threads yet: a child may have its own
        threading_layer()
        left_behind.set()


if hasattr(os, "register_at_fork"):  # where there is fork
    os.register_at_fork(after_in_child=_in_child)


def threads(size: int, rows: int) -> int:
    """How many threads share the work on so many parameters; to wake them takes a few rows."""
    few = size * min(rows, 16) <= PARALLEL
    return 1 if few or left_behind.is_set() else int(get_num_threads())


def workers(tasks: int) -> int:
    """How many threads share so many tasks, each of which takes as long as waking a thread."""
    return 1 if tasks < 8 or left_behind.is_set() else min(tasks, int(get_num_threads()))


@intrinsic
def task(typing, function, arguments):
    """function(start, stop, thread, *arguments) for `run`: where its code is, and its data."""
    wanted = (types.intp, types.intp, types.intp, *arguments.types)
    signature = function.get_call_type(typing, wanted, {})
    places = types.UniTuple(types.intp, 2)

    def generate(context, builder, _, values):
        found = function.dispatcher.get_compile_result(signature)
        context.active_code_library.add_linking_library(found.library)
        data = cgutils.alloca_once_value(builder, values[1])
        number = context.get_value_type(types.intp)
        kind = ir.FunctionType(ir.VoidType(), [number] * 4)
        code = ir.Function(builder.module, kind, builder.module.get_unique_name("task"))
        code.linkage = "internal"
        inside = ir.IRBuilder(code.append_basic_block())
        place, *share = code.args
        kept = inside.load(inside.inttoptr(place, data.type))
        parts = cgutils.unpack_tuple(inside, kept, len(arguments.types))
        context.call_internal_no_propagate(inside, found.fndesc, signature, [*share, *parts])
        inside.ret_void()
        found_at = [builder.ptrtoint(place, number) for place in (code, data)]
        return context.make_tuple(builder, places, found_at)

    return places(function, arguments), generate


@intrinsic
def run(typing, code, data, start, stop, thread):
    """Do a part of a `task`."""

    def generate(context, builder, signature, values):
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values[1:]])
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), generate


@njit(parallel=True, **SETTINGS, **INNER)
def on_threads(size, threads, code, data):
    for t in prange(threads):
        start, stop = size * t // threads, size * (t + 1) // threads
        run(code, data, start, stop, t)  # type: ignore[call-arg]


def shared(part):
    """Share part(start, stop, thread, outs, args) among as many threads as there are outs.

    One thread alone is called as it is: to start a parallel region costs more than a short row.
    """
    part = compiled(part)

    @njit(inline="always")
    def whole(size, outs, args):
        if len(outs) > 1:
            code, data = task(part, (outs, args))  # type: ignore[call-arg, var-annotated]
            on_threads(size, len(outs), code, data)
        else:
            part(START, size, START, outs, args)

    return whole
