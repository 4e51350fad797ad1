"""Rewriting semtree into what OpenCL C can say: builtins, shallow expressions without shared parts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tile_ir.dtype import DType
from tile_ir.emit.shallow import shallow
from tile_ir.emit.walker import map_block, walk_all
from tile_ir.semtree.nodes import Binary, Call, Cast, Expr, Fma, Function, MatrixLoad, Mma, SubgroupOp, Type

from hal_opencl.emit.dialect import Dialect
from hal_opencl.emit.serpentine import serpentine
from hal_opencl.emit.split import split_vectors
from hal_opencl.emit.types import register_bits

_COLLECTIVES = frozenset({MatrixLoad, Mma, SubgroupOp})
"""All lanes of a sub-group execute these together, and some texts around them (masks, guards, ``?:``) are conditional."""


def prepare(function: Function, dialect: Dialect) -> Function:
    """The function as the printer takes it: vectors of OpenCL's widths, patterns replaced, expressions shallow."""
    helpers = tuple(prepare(helper, dialect) for helper in function.helpers)
    vectors = {node.type for node in walk_all(function) if node.type.lanes > 1}
    block = split_vectors(function.body, vectors, dialect.vector_bytes // _widest_element(vectors))
    block = map_block(block, _fast if dialect.fast_math else _exact)
    made = shallow(replace(function, body=block, helpers=helpers), lambda expr: type(expr) in _COLLECTIVES)
    return serpentine(made) if dialect.ptx else made


def _widest_element(vectors: Collection[Type]) -> int:
    """Bytes of the widest element of any of these, as a register holds it."""
    return max((register_bits(vector.dtype) // 8 for vector in vectors), default=1)


# --- patterns --------------------------------------------------------------------------------------


def _exact(node: Expr) -> Expr:
    """Operations OpenCL C lacks, by operations it has."""
    match node:
        case Binary("bit_left" | "bit_right" as op, left, right, t) if t.dtype is DType.BOOL:
            byte = Type(DType.UINT8, t.lanes)
            return Cast(Binary(op, Cast(left, byte), right, byte), t)
        case Binary("bit_left" | "bit_right" as op, left, right, t) if right.type.dtype is DType.BOOL:
            return Binary(op, left, Cast(right, Type(DType.UINT8, t.lanes)), t)
        case Fma(a, b, c, t) if not t.dtype.is_float:
            return Binary("add", Binary("mul", a, b, t), c, t)
        case Cast(value, t) if value.type.dtype is t.dtype:
            return value
        # float64 goes to the half types through float32, as tile_ir.numerics defines.
        case Cast(value, t) if t.dtype in (DType.FLOAT16, DType.BFLOAT16) and value.type.dtype is not DType.FLOAT32:
            return Cast(Cast(value, Type(DType.FLOAT32, t.lanes)), t) if value.type.dtype is DType.FLOAT64 else node
        case _:
            return node


def _fast(node: Expr) -> Expr:
    """Under fast_math a product and a sum become ``mad``, which may round as the device likes."""
    match node:
        case Binary("add", Binary("mul", a, b), c, t) | Binary("add", c, Binary("mul", a, b), t) if (
            t.dtype is DType.FLOAT32
        ):
            return Call("mad", (a, b, c), t)
        case Fma(a, b, c, t) if t.dtype is DType.FLOAT32:
            return Call("mad", (a, b, c), t)
        case _:
            return _exact(node)
