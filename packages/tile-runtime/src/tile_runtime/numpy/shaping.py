"""NumPy's functions of shapes and orders that the array API has under other names, or not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from tile_ir.dtype import DType

from tile_runtime.numpy.creation import eye, zeros
from tile_runtime.numpy.dtypes import astype
from tile_runtime.numpy.elementwise import equal, where
from tile_runtime.numpy.manipulation import concat, expand_dims, flip, indexed, pad, permute_dims, reshape
from tile_runtime.numpy.operands import Operand, Result, axis_of, integer_of, integers_of, made, several, shape_of


def transpose(x: Operand, axes: Sequence[int] | None = None, /) -> Result:
    """The axes in another order, or reversed."""
    return permute_dims(x, range(len(shape_of(x)))[::-1] if axes is None else axes)


def swapaxes(x: Operand, axis1: int, axis2: int, /) -> Result:
    """Two axes exchanged."""
    order = list(range(len(shape_of(x))))
    one, other = (axis_of(len(order), a) for a in (axis1, axis2))
    order[one], order[other] = other, one
    return permute_dims(x, order)


def ravel(x: Operand, /) -> Result:
    """All elements along one axis, in C order."""
    return reshape(x, -1)


def atleast_1d(x: Operand, /) -> Result:
    """A number as a vector of one; anything else as it is."""
    return x if len(shape_of(x)) else reshape(x, 1)


def atleast_2d(x: Operand, /) -> Result:
    """A number or a vector as a matrix of one row; anything else as it is."""
    return x if len(shape_of(x)) > 1 else reshape(x, (1, -1))


def split(x: Operand, sections: int | Sequence[int], /, axis: int = 0) -> list[Result]:
    """Parts along an axis: so many equal ones, or those that begin at 0 and at the places given. ValueError where none fit."""
    size = shape_of(x)[axis_of(len(shape_of(x)), axis)]
    if isinstance(sections, int) and sections > 0 and size % sections:
        raise ValueError(f"{size} elements are not {sections} equal parts: array_split takes such")
    return array_split(x, sections, axis)


def array_split(x: Operand, sections: int | Sequence[int], /, axis: int = 0) -> list[Result]:
    """As `split`, where so many parts may differ by one element, the longer ones first. ValueError for less than one."""
    place = axis_of(len(shape_of(x)), axis)
    size = shape_of(x)[place]
    if isinstance(sections, int):
        if sections < 1:
            raise ValueError(f"there is at least one part, not {sections}")
        short, longer = divmod(size, sections)
        sections = [k * short + min(k, longer) for k in range(1, sections)]
    ends = [0, *sections, size]
    whole = (slice(None),) * place
    return [indexed(x, (*whole, slice(a, b))) for a, b in pairwise(ends)]


def vstack(arrays: Sequence[Operand], /) -> Result:
    """Joined along the first axis; vectors are rows."""
    return concat([atleast_2d(a) for a in several(arrays)])


def hstack(arrays: Sequence[Operand], /) -> Result:
    """Joined along the second axis, vectors along their only one."""
    parts = [atleast_1d(a) for a in several(arrays)]
    return concat(parts, axis=min(1, len(parts[0].shape) - 1))


def column_stack(arrays: Sequence[Operand], /) -> Result:
    """Joined along the second axis; vectors are columns."""
    return concat([a if len(shape_of(a)) > 1 else reshape(a, (-1, 1)) for a in several(arrays)], axis=1)


def fliplr(x: Operand, /) -> Result:
    """Backwards along the second axis."""
    return flip(x, axis=1)


def flipud(x: Operand, /) -> Result:
    """Backwards along the first axis."""
    return flip(x, axis=0)


def rot90(x: Operand, k: int = 1, /, axes: tuple[int, int] = (0, 1)) -> Result:
    """Turned by `k` right angles, from the first of two axes to the second."""
    k = integer_of("k", k)
    turned = {1: lambda: swapaxes(flip(x, axis=axes[1]), *axes), 2: lambda: flip(x, axis=axes)}
    turned[3] = lambda: flip(swapaxes(x, *axes), axis=axes[1])
    return turned[k % 4]() if k % 4 else x


def diagonal(x: Operand, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Result:
    """The cells of two axes whose places differ by `offset`, along a new last axis."""
    rank, offset = len(shape_of(x)), integer_of("offset", offset)
    one, other = axis_of(rank, axis1), axis_of(rank, axis2)
    last = permute_dims(x, (*(k for k in range(rank) if k not in (one, other)), one, other))
    rows, columns = last.shape[-2:]
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    cells = [_places(count, max(-offset, 0)), _places(count, max(offset, 0))]
    return indexed(last, (..., *cells))


def _places(count: int, first: int) -> Result:
    """The numbers from `first` on."""
    return made(np.arange(first, first + count, dtype=np.int32))


def diag(x: Operand, /, k: int = 0) -> Result:
    """A diagonal of a matrix, or the matrix that has a vector on its diagonal `k` and zeros beside."""
    k = integer_of("k", k)
    if len(shape_of(x)) == 2:
        return diagonal(x, k)
    size = shape_of(x)[0] + abs(k)
    row = pad(x, ((max(k, 0), max(-k, 0)),))
    return where(eye(size, k=k, dtype=DType.BOOL), expand_dims(row, 0), zeros((), dtype=x.dtype))


def identity(n: int, dtype: DType | None = None, /) -> Result:
    """Ones on the diagonal of `n` rows, zeros beside it (float32)."""
    return eye(n, dtype=dtype)


def one_hot(x: Operand, n: int, /, dtype: DType = DType.FLOAT32) -> Result:
    """One at the place of each index along a new last axis of size `n`, zeros beside; nothing for indices outside."""
    return astype(equal(expand_dims(x, -1), _places(integer_of("n", n), 0)), dtype)


def indices(shape: Sequence[int], /) -> Result:
    """The places of the cells of a shape, along a new first axis for each of its axes (int32)."""
    return made(np.indices(integers_of("shape", shape), dtype=np.int32))
