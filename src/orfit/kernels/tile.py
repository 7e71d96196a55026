"""Tiles of matrix products, written in vectors.

From loops over numbers the sums of a tile go to memory and back, at half the speed; and a compiler
adds them up in another order wherever it makes another loop of them.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# Of a tile, whose sums stay in registers: 12 vectors, and 4 more for what is added to them. So many
# numbers of 64 bits are in a vector, and twice as many of 32.
ROWS, COLUMNS, LANES = 4, 12, 4

# A product and a sum may be rounded once, and nothing else: what has no flags gets those of
# `settings.SETTINGS`, by which sums may be reordered.
CONTRACT = ["contract"]


def lanes_of(number):
    """How many numbers of that type are in a vector."""
    return LANES * 64 // number.bitwidth


def array(context, builder, signature, values, i):
    """The i-th argument, and where each of its rows begins."""
    made = context.make_array(signature.args[i])(context, builder, values[i])
    width = builder.extract_value(made.shape, 1)
    return made, lambda row: builder.gep(made.data, [builder.mul(row, width)])


def add_product(builder, total, left, right):
    """total ← total + left right."""
    term = builder.fmul(left, right, flags=CONTRACT)
    builder.store(builder.fadd(builder.load(total), term, flags=CONTRACT), total)


def product_tile(count, adds):
    """A tile of a product: `count` of its rows, and as many columns as three vectors hold."""

    @intrinsic
    def tile(typing, left, first, source, begin, out, column):
        """out[first : first + count, column : …] ← left[first : first + count] panel, or + that.

        The panel is some columns of the source, from `begin` on.
        """
        arrays, number = (left, source, out), left.dtype
        if not all(array.layout == "C" and array.dtype == number for array in arrays):
            return None
        lanes, size = lanes_of(number), number.bitwidth // 8

        def generate(context, builder, signature, values):
            at, begin, across = values[1], values[3], values[5]
            (L, left), (_, source), (_, out) = (
                array(context, builder, signature, values, i) for i in (0, 2, 4)
            )
            index, lane = at.type, ir.IntType(32)
            vector = ir.VectorType(context.get_value_type(number), lanes)
            undefined = ir.Constant(vector, ir.Undefined)
            everywhere = ir.Constant(ir.VectorType(lane, lanes), [0] * lanes)
            rows, parts = range(count), range(COLUMNS // LANES)

            def vectors(start):
                start = builder.bitcast(start, vector.as_pointer())
                return [builder.gep(start, [index(part)]) for part in parts]

            lefts = [left(builder.add(at, index(r))) for r in rows]
            outs = [vectors(builder.gep(out(builder.add(at, index(r))), [across])) for r in rows]
            zero = ir.Constant(vector, [0.0] * lanes)
            sums = [
                [
                    cgutils.alloca_once_value(
                        builder, builder.load(place, align=size) if adds else zero
                    )
                    for place in of_row
                ]
                for of_row in outs
            ]
            with cgutils.for_range(builder, builder.extract_value(L.shape, 1)) as loop:
                panel = builder.gep(source(loop.index), [begin])
                rights = [builder.load(part, align=size) for part in vectors(panel)]
                for r in rows:
                    share = builder.load(builder.gep(lefts[r], [loop.index]))
                    share = builder.insert_element(undefined, share, lane(0))
                    share = builder.shuffle_vector(share, undefined, everywhere)
                    for part in parts:
                        add_product(builder, sums[r][part], share, rights[part])
            for of_row, places in zip(sums, outs, strict=True):
                for total, place in zip(of_row, places, strict=True):
                    builder.store(builder.load(total), place, align=size)
            return context.get_dummy_value()

        return types.void(left, types.intp, source, types.intp, out, types.intp), generate

    return tile


tile = product_tile(ROWS, adds=False)
add_four, add_two, add_one = (product_tile(count, adds=True) for count in (ROWS, 2, 1))


def inner_products(count):
    """A tile of products of rows with `count` others.

    Each product is the same to the last bit, whichever rows and however many are in the tile.
    """

    @intrinsic
    def inner(typing, rows, first, others, at, begin, end):
        """Products of ROWS rows from `first` on with those from `at` on, over some columns."""
        if not (rows.layout == others.layout == "C" and rows.dtype == others.dtype):
            return None
        number = rows.dtype
        lanes, size = lanes_of(number), number.bitwidth // 8

        def generate(context, builder, signature, values):
            begin, end, index, lane = values[4], values[5], values[1].type, ir.IntType(32)
            vector = ir.VectorType(context.get_value_type(number), lanes)
            (_, left), (_, right) = (array(context, builder, signature, values, i) for i in (0, 2))
            lefts = [left(builder.add(values[1], index(r))) for r in range(ROWS)]
            rights = [right(builder.add(values[3], index(c))) for c in range(count)]
            zero = ir.Constant(vector, [0.0] * lanes)
            sums = [[cgutils.alloca_once_value(builder, zero) for _ in rights] for _ in lefts]

            def numbers(start, place):
                start = builder.bitcast(builder.gep(start, [place]), vector.as_pointer())
                return builder.load(start, align=size)

            width = builder.sub(end, begin)
            whole = builder.sub(width, builder.srem(width, index(lanes)))
            with cgutils.for_range(builder, builder.sdiv(whole, index(lanes))) as loop:
                place = builder.add(begin, builder.mul(loop.index, index(lanes)))
                others = [numbers(start, place) for start in rights]
                for start, of_row in zip(lefts, sums, strict=True):
                    here = numbers(start, place)
                    for total, other in zip(of_row, others, strict=True):
                        add_product(builder, total, here, other)

            def added_up(part):
                undefined, half = ir.Constant(part.type, ir.Undefined), part.type.count // 2
                places = [[*range(half)], [*range(half, 2 * half)]]
                low, high = (
                    builder.shuffle_vector(
                        part, undefined, ir.Constant(ir.VectorType(lane, half), places[i])
                    )
                    for i in range(2)
                )
                both = builder.fadd(low, high, flags=CONTRACT)
                return added_up(both) if half > 1 else builder.extract_element(both, lane(0))

            totals = [
                [
                    cgutils.alloca_once_value(builder, added_up(builder.load(part)))
                    for part in of_row
                ]
                for of_row in sums
            ]
            with cgutils.for_range(builder, builder.sub(width, whole)) as loop:
                place = builder.add(builder.add(begin, whole), loop.index)
                others = [builder.load(builder.gep(start, [place])) for start in rights]
                for start, of_row in zip(lefts, totals, strict=True):
                    here = builder.load(builder.gep(start, [place]))
                    for total, other in zip(of_row, others, strict=True):
                        add_product(builder, total, here, other)
            made = [builder.load(total) for of_row in totals for total in of_row]
            return context.make_tuple(builder, signature.return_type, made)

        products = types.UniTuple(number, ROWS * count)
        return products(rows, types.intp, others, *[types.intp] * 3), generate

    return inner


with_one, with_two = inner_products(1), inner_products(2)
