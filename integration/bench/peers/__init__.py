"""The same work through other libraries: each makes contestants of a case's expression."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from classes import Work
from numpy.typing import NDArray

Arrays = Sequence[NDArray[Any]]
"""The inputs in the order in which the work names them."""
Contestants = Mapping[str, Callable[[], Any]]


@dataclass(frozen=True, slots=True)
class Peer:
    """A library, and what must be installed for it."""

    contestants: Callable[[Work, Arrays], Contestants]
    """Empty where the work has no expression for it."""
    modules: Sequence[str]
    programs: Sequence[str] = ()

    def lacking(self) -> str:
        """What is not installed; empty when nothing is."""
        missing = [m for m in self.modules if importlib.util.find_spec(m) is None]
        return ", ".join([*missing, *(p for p in self.programs if shutil.which(p) is None)])


def expression(text: str, work: Work, **modules: Any) -> Callable[..., Any]:
    """A function of the work's inputs, in order."""
    return eval(f"lambda {', '.join(work.inputs)}: {text}", {**modules, **work.names})


def _numpy(work: Work, arrays: Arrays) -> Contestants:
    if not work.numpy:
        return {}
    run = expression(work.numpy, work, np=np)
    return {"NumPy": lambda: run(*arrays)}


def _torch(work: Work, arrays: Arrays) -> Contestants:
    from peers import pytorch

    return pytorch.eager(work, pytorch.on_host(arrays))


def _compiled(work: Work, arrays: Arrays) -> Contestants:
    from peers import pytorch

    return pytorch.compiled(work, pytorch.on_host(arrays))


def _onnx_runtime(work: Work, arrays: Arrays) -> Contestants:
    from peers import onnx

    return onnx.contestants(work, arrays)


def _numba(work: Work, arrays: Arrays) -> Contestants:
    if not work.loop:
        return {}
    from peers import loops

    run = getattr(loops, work.loop)
    return {"Numba": lambda: run(*arrays)}


PEERS: Mapping[str, Peer] = {
    "numpy": Peer(_numpy, ["numpy"]),
    "torch": Peer(_torch, ["torch"]),
    "compile": Peer(_compiled, ["torch"], ["g++"]),
    "onnx": Peer(_onnx_runtime, ["torch", "onnx", "onnxruntime"]),
    "numba": Peer(_numba, ["numba"]),
}
