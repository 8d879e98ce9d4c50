"""Compiled kernel values of a few frames with many centroids: products and exponentials in the processor's registers.

Every number is summed by itself, in the order of the features, so that it does not depend on what stands beside it;
a library's products do not promise that. Written in the compiler's own language, in which a register is a value.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipeline.machines.exponential import LEAST, LOG_2_EXCESS, LOG_2_HIGH, PER_LOG_2, SERIES

ROWS, COLUMNS = 6, 16
"""Of a block: on processors with AVX2 its sums take twelve of the sixteen registers."""

_WORD, _INTEGER, _NUMBER = ir.IntType(64), ir.IntType(32), ir.FloatType()
_LANES = ir.VectorType(_NUMBER, COLUMNS)
_NUMBER_BYTES = 4
_CONTRACT = ("contract",)


def _kernel_block(_context: Any, x: Any, x_step: Any, y: Any, y_step: Any, depth: Any, out: Any, out_step: Any) -> Any:
    """Rows of a block: out[r, c] = exp(sum over d < depth of x[r, d] y[d, c]), all float32, and 1 for a sum above 0.

    Arrays are given by addresses and, from row to row, steps in bytes; ``depth`` is 1 or more. Nothing is checked.
    """

    def generate(target: Any, builder: Any, _signature: Any, values: Any) -> Any:
        *operands, out, out_step = values
        for r, exponents in enumerate(_products(builder, *operands)):
            made = _exponentials(builder, exponents)
            builder.store(made, _place(builder, _row(builder, out, out_step, r), _LANES), align=_NUMBER_BYTES)
        return target.get_dummy_value()

    return types.void(x, x_step, y, y_step, depth, out, out_step), generate


def _products(builder: Any, x: Any, x_step: Any, y: Any, y_step: Any, depth: Any) -> list[Any]:
    """A loop over the features; the sums of each row after it."""
    before, loop = builder.block, builder.append_basic_block("depth")
    after = builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    d, sums = builder.phi(_WORD), [builder.phi(_LANES) for _ in range(ROWS)]
    d.add_incoming(_WORD(0), before)
    numbers = builder.load(_place(builder, _row(builder, y, y_step, d), _LANES), align=_NUMBER_BYTES)
    along = _row(builder, x, _WORD(_NUMBER_BYTES), d)
    found = []
    for r, total in enumerate(sums):
        one = builder.load(_place(builder, _row(builder, along, x_step, r), _NUMBER), align=_NUMBER_BYTES)
        product = builder.fmul(_in_all_lanes(builder, one), numbers, flags=_CONTRACT)
        found.append(builder.fadd(product, total, flags=_CONTRACT))
        total.add_incoming(_constant(0.0), before)
        total.add_incoming(found[r], loop)
    following = builder.add(d, _WORD(1))
    d.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
    builder.position_at_end(after)
    return found


def _exponentials(builder: Any, x: Any) -> Any:
    """``exponential.exponential`` of every lane, an exponent above 0, which only rounding makes, taken for 0."""

    def multiplied(first: Any, second: Any, plus: Any) -> Any:
        return builder.fadd(builder.fmul(first, second, flags=_CONTRACT), plus, flags=_CONTRACT)

    least, most, integers = _constant(LEAST), _constant(0.0), ir.VectorType(_INTEGER, COLUMNS)
    exponent = builder.select(builder.fcmp_ordered(">", x, least), x, least)
    exponent = builder.select(builder.fcmp_ordered("<", exponent, most), exponent, most)
    n = builder.fptosi(multiplied(exponent, _constant(PER_LOG_2), _constant(-0.5)), integers)
    whole = builder.sitofp(n, _LANES)
    r = multiplied(whole, _constant(LOG_2_EXCESS), multiplied(whole, _constant(-LOG_2_HIGH), exponent))
    series = _constant(SERIES[0])
    for coefficient in SERIES[1:]:
        series = multiplied(series, r, _constant(coefficient))
    value = multiplied(builder.fmul(series, r), r, builder.fadd(r, _constant(1.0)))
    bits = builder.shl(builder.add(n, integers([127] * COLUMNS)), integers([23] * COLUMNS))
    return builder.fmul(value, builder.bitcast(bits, _LANES))


def _place(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _row(builder: Any, address: Any, step: Any, number: Any) -> Any:
    number = _WORD(number) if isinstance(number, int) else number
    return builder.add(address, builder.mul(step, number))


def _constant(number: Any) -> Any:
    return _LANES([float(number)] * COLUMNS)


def _in_all_lanes(builder: Any, number: Any) -> Any:
    empty = _LANES(ir.Undefined)
    one = builder.insert_element(empty, number, _INTEGER(0))
    return builder.shuffle_vector(one, empty, ir.VectorType(_INTEGER, COLUMNS)([0] * COLUMNS))


kernel_block: Any = intrinsic(_kernel_block)
