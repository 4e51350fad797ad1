"""The same work through other libraries: each file makes contestants of a case's expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from classes.work import Work
from numpy.typing import NDArray

Arrays = Sequence[NDArray[Any]]
"""The inputs in the order in which the work names them."""
Contestants = Mapping[str, Callable[[], Any]]


def expression(text: str, work: Work, **modules: Any) -> Callable[..., Any]:
    """A function of the work's inputs, in order."""
    return eval(f"lambda {', '.join(work.inputs)}: {text}", {**modules, **work.names})  # noqa: S307


def with_numpy(work: Work, arrays: Arrays) -> Contestants:
    if not work.numpy:
        return {}
    run = expression(work.numpy, work, np=np)
    return {"NumPy": lambda: run(*arrays)}


def with_torch(work: Work, arrays: Arrays) -> Contestants:
    from peers import pytorch

    return pytorch.eager(work, arrays)


def with_compiled_torch(work: Work, arrays: Arrays) -> Contestants:
    from peers import pytorch

    return pytorch.compiled(work, arrays)


def with_onnx_runtime(work: Work, arrays: Arrays) -> Contestants:
    from peers import onnx

    return onnx.contestants(work, arrays)


def with_numba(work: Work, arrays: Arrays) -> Contestants:
    if not work.loop:
        return {}
    from peers import loops

    run = getattr(loops, work.loop)
    return {"Numba": lambda: run(*arrays)}


PEERS: Mapping[str, Callable[[Work, Arrays], Contestants]] = {
    "numpy": with_numpy,
    "torch": with_torch,
    "compile": with_compiled_torch,
    "onnx": with_onnx_runtime,
    "numba": with_numba,
}
