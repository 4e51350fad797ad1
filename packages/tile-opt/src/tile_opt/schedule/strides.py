"""How far apart in memory neighbouring iterations of a loop touch a buffer."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.stripe.nodes import Const, Op

from tile_opt.schedule.view import KernelView, Use


def flat_stride(view: KernelView, use: Use, loop: str) -> int:
    """Elements between the accesses of consecutive iterations of `loop`."""
    strides = view.type_of(use.buffer).strides
    return sum(form.coefficient(loop) * s for form, s in zip(use.forms, strides, strict=True))


def flat_offset(view: KernelView, use: Use) -> int:
    """Element that the access touches when all loops are at 0."""
    strides = view.type_of(use.buffer).strides
    return sum(form.const * s for form, s in zip(use.forms, strides, strict=True))


def scalar_bytes(view: KernelView) -> int:
    """Width of the widest scalar the kernel works with, in bytes."""
    dtypes = {view.type_of(u.buffer).dtype for s in view.stages for u in s.uses}
    dtypes |= {b.dtype for s in view.stages for b in s.body if isinstance(b, Const | Op)}
    return max((_working_bytes(d) for d in dtypes), default=4)


def _working_bytes(dtype: DType) -> int:
    """Half-precision floats are computed in single precision."""
    return 4 if dtype in (DType.FLOAT16, DType.BFLOAT16) else dtype.bytes
