"""A tile of a matrix product, written in vectors."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# Of a tile, whose sums stay in registers: 12 vectors, and 4 more for what is added to them.
ROWS, COLUMNS, LANES = 4, 12, 4


@intrinsic
def tile(typing, left, first, source, begin, out, column):
    """out[first : first + ROWS, column : column + COLUMNS] ← left[first : first + ROWS] panel.

    The panel is COLUMNS of the source, from `begin` on. Written in vectors: from loops over numbers
    the sums go to memory and back, at half the speed.
    """
    arrays = (left, source, out)
    if not all(array.layout == "C" and array.dtype == types.float64 for array in arrays):
        return None

    def generate(context, builder, signature, values):
        at, begin, across = values[1], values[3], values[5]
        L, P, O = (
            context.make_array(signature.args[i])(context, builder, values[i]) for i in (0, 2, 4)
        )
        vector, index, lane = ir.VectorType(ir.DoubleType(), LANES), at.type, ir.IntType(32)
        undefined = ir.Constant(vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)
        rows, parts = range(ROWS), range(COLUMNS // LANES)

        def row(array, i):
            width = builder.extract_value(array.shape, 1)
            return builder.gep(array.data, [builder.mul(i, width)])

        def vectors(start):
            start = builder.bitcast(start, vector.as_pointer())
            return [builder.gep(start, [index(part)]) for part in parts]

        zero = ir.Constant(vector, [0.0] * LANES)
        sums = [[cgutils.alloca_once_value(builder, zero) for _ in parts] for _ in rows]
        lefts = [row(L, builder.add(at, index(r))) for r in rows]
        with cgutils.for_range(builder, builder.extract_value(L.shape, 1)) as loop:
            panel = builder.gep(row(P, loop.index), [begin])
            rights = [builder.load(part, align=8) for part in vectors(panel)]
            for r in rows:
                number = builder.load(builder.gep(lefts[r], [loop.index]))
                number = builder.insert_element(undefined, number, lane(0))
                number = builder.shuffle_vector(number, undefined, everywhere)
                for part in parts:
                    term = builder.fmul(number, rights[part], flags=["contract"])
                    total = builder.fadd(builder.load(sums[r][part]), term, flags=["contract"])
                    builder.store(total, sums[r][part])
        for r in rows:
            start = builder.gep(row(O, builder.add(at, index(r))), [across])
            for part, target in zip(parts, vectors(start), strict=True):
                builder.store(builder.load(sums[r][part]), target, align=8)
        return context.get_dummy_value()

    return types.void(left, types.intp, source, types.intp, out, types.intp), generate
