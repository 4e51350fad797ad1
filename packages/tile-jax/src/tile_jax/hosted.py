"""What the host computes between device programs: decompositions of matrices, and functions of Python's that a program calls.

Functions take NumPy's arrays, stacks of matrices among them, and give such arrays: what LAPACK finds, and NaN of a matrix
with elements that are not finite, as on JAX's own CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np

Array = np.ndarray[Any, Any]
Hosted = Callable[..., Sequence[Array]]

MARK = "tile.host."
"""What names of custom calls begin with that the host runs."""


# --- decompositions ----------------------------------------------------------------------------------------


def eigh(matrix: Array, *, lower: bool, subset_by_index: Sequence[int] | None = None, **_: Any) -> Sequence[Array]:
    """Eigenvectors and ascending eigenvalues of symmetric matrices, of which one triangle is read."""
    values, vectors = np.linalg.eigh(matrix, "L" if lower else "U")
    chosen = slice(*(subset_by_index or (None,)))
    return vectors[..., chosen], values[..., chosen]


def svd(
    matrix: Array, *, full_matrices: bool, compute_uv: bool, subset_by_index: Sequence[int] | None = None, **_: Any
) -> Sequence[Array]:
    """Descending singular values, and with `compute_uv` the vectors of the left and the right."""
    chosen = slice(*(subset_by_index or (None,)))
    if not compute_uv:
        return (np.linalg.svd(matrix, compute_uv=False)[..., chosen],)
    left, values, right = np.linalg.svd(matrix, full_matrices)
    if subset_by_index is None:
        return values, left, right
    return values[..., chosen], left[..., chosen], right[..., chosen, :]


def eig(
    matrix: Array, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **_: Any
) -> Sequence[Array]:
    """Complex eigenvalues, and the vectors that are asked for, those of the left first."""
    wanted = compute_left_eigenvectors, compute_right_eigenvectors
    return _stacked(lambda one: _eig(one, *wanted), matrix)


def _eig(matrix: Array, left: bool, right: bool) -> Sequence[Array]:
    found: Any = import_module("scipy.linalg").eig(matrix, left=left, right=right, check_finite=False)
    parts: Sequence[Array] = found if left or right else (found,)
    wide = np.result_type(matrix.dtype, np.complex64)
    return [part.astype(wide) for part in parts]


def schur(matrix: Array, *, compute_schur_vectors: bool, **_: Any) -> Sequence[Array]:
    """The (quasi-)triangular form, and with `compute_schur_vectors` the basis that it is one in."""
    output = "complex" if np.iscomplexobj(matrix) else "real"
    found = _stacked(lambda one: import_module("scipy.linalg").schur(one, output, check_finite=False), matrix)
    return found if compute_schur_vectors else found[:1]


def hessenberg(matrix: Array, **_: Any) -> Sequence[Array]:
    """The Hessenberg form with the reflections below it, and their factors."""
    return _stacked(lambda one: _lapack("gehrd", one)[:2], matrix)


def tridiagonal(matrix: Array, *, lower: bool, **_: Any) -> Sequence[Array]:
    """The reflections, the diagonal and what is beside it, and the reflections' factors."""
    name = "hetrd" if np.iscomplexobj(matrix) else "sytrd"
    return _stacked(lambda one: _lapack(name, one, lower=int(lower))[:4], matrix)


def _lapack(name: str, matrix: Array, **options: Any) -> Sequence[Array]:
    return import_module("scipy.linalg.lapack").get_lapack_funcs((name,), (matrix,))[0](matrix, **options)


def _stacked(function: Callable[[Array], Sequence[Array]], stack: Array) -> Sequence[Array]:
    """What a function of one matrix gives for each of a stack."""
    above = stack.shape[:-2]
    matrices = stack.reshape((-1, *stack.shape[-2:]))
    rows = [function(matrix) for matrix in matrices] or [function(np.eye(stack.shape[-1], dtype=stack.dtype))]
    return [np.stack(part)[: len(matrices)].reshape((*above, *part[0].shape)) for part in zip(*rows, strict=True)]


DECOMPOSITIONS: dict[str, Hosted] = {
    "eig": eig, "eigh": eigh, "hessenberg": hessenberg, "schur": schur, "svd": svd, "tridiagonal": tridiagonal,
}  # fmt: skip
"""By the names of JAX's primitives."""


def decomposed(name: str, matrix: Array, **options: Any) -> Sequence[Array]:
    """One of them, with JAX's options."""
    finite: Array = np.asarray(np.isfinite(matrix).all((-2, -1)))
    if finite.all():
        return DECOMPOSITIONS[name](matrix, **options)
    made = DECOMPOSITIONS[name](np.where(finite[..., None, None], matrix, 0), **options)
    below = [tuple(range(finite.ndim, part.ndim)) for part in made]
    return [np.where(np.expand_dims(finite, axes), part, np.nan) for axes, part in zip(below, made, strict=True)]


# --- transforms --------------------------------------------------------------------------------------------


def transformed(kind: str, lengths: Sequence[int], values: Array) -> Sequence[Array]:
    """The transform ``fft``, ``ifft``, ``rfft`` or ``irfft`` of `lengths` along as many last axes, in the precision of `values`."""
    axes = range(-len(lengths), 0)
    made: Array = getattr(np.fft, f"{kind}n")(values, list(lengths), list(axes))
    return (made.astype(np.result_type(values.dtype, np.complex64) if made.dtype.kind == "c" else values.real.dtype),)


# --- callbacks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Called:
    """A function of Python's that a program calls: of JAX's arrays where JAX has its own CPU too, else of NumPy's."""

    function: Callable[..., Any]
    types: tuple[tuple[tuple[int, ...], Any], ...]
    """Shapes and dtypes of what it has said that it gives."""

    def __call__(self, *arrays: Array) -> Sequence[Array]:
        made = [np.asarray(value) for value in self._made(arrays)]
        found = tuple((value.shape, value.dtype) for value in made)
        if found != self.types:
            raise TypeError(f"a callback gave {_listed(found)}, and had said {_listed(self.types)}")
        return made

    def _made(self, arrays: Sequence[Array]) -> Sequence[Any]:
        jax: Any = import_module("jax")
        try:
            cpu = jax.local_devices(backend="cpu")[0]
        except RuntimeError:
            return self.function(*arrays)
        with jax.default_device(cpu):
            return self.function(*jax.device_put(list(arrays), cpu))


def _listed(types: Sequence[tuple[tuple[int, ...], Any]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in types) or "nothing"


_calls: WeakValueDictionary[str, Called] = WeakValueDictionary()
"""JAX's programs keep what they call."""


def call_key(called: Called) -> str:
    """A name that no other process gives, since programs are kept on disk."""
    key = uuid4().hex
    _calls[key] = called
    return key


def find_called(key: str) -> Called | None:
    """The function of a name; None when it was another process's, or its program is gone."""
    return _calls.get(key)
