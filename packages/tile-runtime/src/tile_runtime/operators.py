"""What Tensors and Symbols have in common with arrays: operators, indexing and methods, by functions that lie above them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from tile_runtime import protocol
from tile_runtime.above import functions

if TYPE_CHECKING:
    from types import ModuleType

    from tile_ir.dtype import DType

Axes = int | Sequence[int] | None
INSTEAD: Mapping[str, str] = {
    "at": "nothing is written in place: where(test, value, x) chooses, segment_sum(values, places, count) adds up at places",
    **dict.fromkeys(
        ("backward", "grad", "requires_grad"), "tile_runtime.grad and tile_runtime.vjp differentiate functions"
    ),
    **dict.fromkeys(("to", "cpu", "cuda"), "tile_runtime.asarray(x, device) moves it, x.astype(dtype) converts it"),
    **dict.fromkeys(("view", "unsqueeze"), "x.reshape(…) and x[:, None] change the shape"),
    **dict.fromkeys(("permute", "permute_dims"), "x.transpose(…) changes the order of dimensions"),
    "block_until_ready": "x.wait() waits",
    "detach": "gradients are of functions: a Tensor has none",
}
"""What arrays of other libraries have, and what to write."""


def _binary(name: str, left: Any, right: Any) -> Any:
    """The function of this name; NotImplemented for what is no operand, so that Python asks the other one."""
    if isinstance(left, _OPERANDS) and isinstance(right, _OPERANDS):
        return getattr(functions.module, name)(left, right)
    return NotImplemented


class Operators:
    """Arithmetic, comparisons, indexing and the usual methods.

    On Tensors nothing is computed until somebody looks (`tile_runtime.pending`); on Symbols they are part of the
    composition. Python numbers take the dtype of the tensor. Comparisons compare elements, so that ``a == b`` has no
    truth value unless it has one element.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    symbolic = False
    """Whether it stands for what is yet to be computed, so that nobody can look at elements."""
    shape: tuple[int, ...]
    dtype: DType

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        """Operators between arrays and Tensors, and all functions of Symbols, are Tile's; others compute on the host."""
        return protocol.ufunc(inputs, ufunc, method, named, Operators)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return protocol.function(func, args, kwargs, Operators)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        return functions.module

    if not TYPE_CHECKING:  # what is not there is still found by those who check types

        def __getattr__(self, name: str) -> Any:
            """Only for names that are not there: AttributeError, with what to write instead of a few from elsewhere."""
            told = f"; {INSTEAD[name]}" if name in INSTEAD else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{told}", name=name, obj=self)

    # --- shape ----------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def T(self) -> Self:
        """The axes in reverse order."""
        return functions.module.permute_dims(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Self:
        """The last two axes exchanged."""
        return functions.module.matrix_transpose(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        """Its parts along the first axis."""
        return (self[k] for k in range(len(self)))

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The same elements in C order; one extent may be -1. ValueError where the numbers do not fit."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return functions.module.reshape(self, sizes)

    def transpose(self, *axes: int | Sequence[int]) -> Self:
        """The axes in this order, or reversed."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return functions.module.permute_dims(self, order) if axes else self.T

    def copy(self) -> Self:
        """The same elements; nothing that changes this tensor changes them."""
        return functions.module.positive(self)

    def flatten(self) -> Self:
        """All elements along one axis."""
        return self.reshape(-1)

    ravel = flatten

    def squeeze(self, axis: Axes = None) -> Self:
        """Without axes of one element."""
        return functions.module.squeeze(self, axis)

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Two axes exchanged."""
        return functions.module.swapaxes(self, axis1, axis2)

    def astype(self, dtype: npt.DTypeLike | DType) -> Self:
        """Converted as Tile's casts do it: floats to integers towards zero, saturated."""
        return functions.module.astype(self, dtype)

    # --- aggregations ---------------------------------------------------------------------------------

    def sum(self, axis: Axes = None, keepdims: bool = False, *, dtype: npt.DTypeLike | DType | None = None) -> Self:
        """The sum over `axis`, or of all; in `dtype` where that is given."""
        return functions.module.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False, *, dtype: npt.DTypeLike | DType | None = None) -> Self:
        """The product over `axis`, or of all; in `dtype` where that is given."""
        return functions.module.prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """The largest along `axis`, or of all."""
        return functions.module.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """The smallest along `axis`, or of all."""
        return functions.module.min(self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """The mean over `axis`, or of all; of integers in float32."""
        return functions.module.mean(self, axis=axis, keepdims=keepdims)

    def var(self, axis: Axes = None, correction: float = 0.0, keepdims: bool = False, *, ddof: float = 0.0) -> Self:
        """The variance over `axis`, or of all; `ddof` is NumPy's name of `correction`."""
        return functions.module.var(self, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof)

    def std(self, axis: Axes = None, correction: float = 0.0, keepdims: bool = False, *, ddof: float = 0.0) -> Self:
        """The standard deviation over `axis`, or of all; `ddof` is NumPy's name of `correction`."""
        return functions.module.std(self, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof)

    def any(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """Whether one is not zero."""
        return functions.module.any(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Axes = None, keepdims: bool = False) -> Self:
        """Whether none is zero."""
        return functions.module.all(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None) -> Self:
        """The place of the first of the largest along `axis`, or in C order of all (int32)."""
        return functions.module.argmax(self, axis=axis)

    def argmin(self, axis: int | None = None) -> Self:
        """The place of the first of the smallest along `axis`, or in C order of all (int32)."""
        return functions.module.argmin(self, axis=axis)

    def argsort(self, axis: int = -1) -> Self:
        """The places (int32) that put the elements along `axis` in order; equal elements keep theirs."""
        return functions.module.argsort(self, axis=axis)

    def cumsum(self, axis: int = 0) -> Self:
        """Running sums along `axis`."""
        return functions.module.cumulative_sum(self, axis=axis)

    def cumprod(self, axis: int = 0) -> Self:
        """Running products along `axis`."""
        return functions.module.cumulative_prod(self, axis=axis)

    # --- elements -------------------------------------------------------------------------------------

    def clip(self, min: Any = None, max: Any = None) -> Self:
        """At least `min` and at most `max`, as far as they are given."""
        return functions.module.clip(self, min, max)

    def round(self, decimals: int = 0) -> Self:
        """The nearest number of so many decimals; halves go to the even neighbour."""
        return functions.module.round(self, decimals)

    def take(self, indices: Any, axis: int | None = None) -> Self:
        """Parts by number along `axis`, or elements in C order; negative numbers count from the end."""
        return functions.module.take(self, indices, axis=axis)

    def dot(self, other: Any) -> Self:
        """A product of vectors or matrices."""
        return functions.module.dot(self, other)

    def __format__(self, form: str) -> str:
        """One element in a format of numbers; ValueError of several."""
        return format(np.asarray(self).item(), form) if form else str(self)

    # --- indexing and operators -----------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Self:
        return functions.module.indexed(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            "elements are not assigned to: make a new tensor, as in tile_runtime.numpy.where(test, value, tensor)"
        )

    def __neg__(self) -> Self:
        return functions.module.negative(self)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return functions.module.abs(self)

    def __invert__(self) -> Self:
        return functions.module.bitwise_invert(self)

    def __matmul__(self, other: Any) -> Self:
        return _binary("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Self:
        return _binary("matmul", other, self)

    def __pow__(self, other: Any) -> Self:
        return _binary("pow", self, other)

    def __rpow__(self, other: Any) -> Self:
        return _binary("pow", other, self)

    def __add__(self, other: Any) -> Self:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Self:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Self:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Self:
        return _binary("subtract", other, self)

    def __mul__(self, other: Any) -> Self:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Self:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Self:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return _binary("divide", other, self)

    def __floordiv__(self, other: Any) -> Self:
        return _binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Self:
        return _binary("floor_divide", other, self)

    def __mod__(self, other: Any) -> Self:
        return _binary("remainder", self, other)

    def __rmod__(self, other: Any) -> Self:
        return _binary("remainder", other, self)

    def __and__(self, other: Any) -> Self:
        return _binary("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Self:
        return _binary("bitwise_and", other, self)

    def __or__(self, other: Any) -> Self:
        return _binary("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Self:
        return _binary("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Self:
        return _binary("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Self:
        return _binary("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Self:
        return _binary("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> Self:
        return _binary("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> Self:
        return _binary("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> Self:
        return _binary("bitwise_right_shift", other, self)

    def __lt__(self, other: Any) -> Self:
        return _binary("less", self, other)

    def __le__(self, other: Any) -> Self:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Self:
        return _binary("greater", self, other)

    def __ge__(self, other: Any) -> Self:
        return _binary("greater_equal", self, other)

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return _binary("equal", self, other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return _binary("not_equal", self, other)


_OPERANDS = (Operators, np.ndarray, np.generic, int, float)
