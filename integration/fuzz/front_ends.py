"""Front ends: each computes a graph of array operations on Tile's default device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from fuzz.graphs import Array, Graph

THREADS = 4


def tensors(graph: Graph) -> list[list[Array]]:
    """Lazy Tensors, in several threads that share the inputs: one program of all results, or one for each, from the last."""
    import tile_runtime as tile
    import tile_runtime.numpy as xp

    inputs = [tile.asarray(a) for a in graph.inputs]

    def compute(thread: int) -> list[Array]:
        results = graph.run(xp, inputs)
        order = range(len(results)) if thread % 2 else reversed(range(len(results)))
        found = {n: np.asarray(tile.asarray(results[n]).numpy()) for n in order}
        return [found[n] for n in range(len(results))]

    with ThreadPoolExecutor(THREADS) as pool:
        return [*pool.map(compute, range(THREADS))]


def jax(graph: Graph) -> list[list[Array]]:
    """A jitted function on Tile's platform, and on JAX's own CPU."""
    import jax
    import jax.numpy as xp

    _registered()

    def compute(platform: str) -> list[Array]:
        device = jax.devices(platform)[0]
        given = [jax.device_put(a, device) for a in graph.inputs]
        return [np.asarray(r) for r in jax.jit(lambda *inputs: graph.run(xp, inputs))(*given)]

    return [compute("tile"), compute("cpu")]


@cache
def _registered() -> None:
    import tile_jax

    tile_jax.register()


def torch(graph: Graph) -> list[list[Array]]:
    """A compiled module, and the eager one."""
    import torch

    class Module(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return tuple(graph.run(TorchNames, inputs))

    torch._dynamo.reset()
    module, given = Module(), [torch.from_numpy(np.array(a)) for a in graph.inputs]
    compiled = torch.compile(module, backend="tile")
    with torch.no_grad():
        return [[r.numpy() for r in run(*given)] for run in (compiled, module)]


class _TorchNames:
    """PyTorch's functions by the standard's names."""

    def __getattr__(self, name: str) -> Any:
        import torch

        other = {"permute_dims": "permute", "equal": "eq"}
        return getattr(torch, other.get(name, name))

    def astype(self, x: Any, to: Any) -> Any:
        return x.to(to)

    def max(self, x: Any, axis: int, keepdims: bool) -> Any:
        return x.amax(axis, keepdims)

    def min(self, x: Any, axis: int, keepdims: bool) -> Any:
        return x.amin(axis, keepdims)

    def any(self, x: Any, axis: int, keepdims: bool) -> Any:
        return x.any(axis, keepdims)

    def all(self, x: Any, axis: int, keepdims: bool) -> Any:
        return x.all(axis, keepdims)

    def flip(self, x: Any, axis: int) -> Any:
        return x.flip([axis])

    def roll(self, x: Any, by: int, axis: int) -> Any:
        return x.roll(by, axis)

    def expand_dims(self, x: Any, axis: int) -> Any:
        return x.unsqueeze(axis)

    def tril(self, x: Any, k: int) -> Any:
        return x.tril(k)

    def take(self, x: Any, where: Any, axis: int) -> Any:
        return x.index_select(axis, where)

    def sort(self, x: Any, axis: int) -> Any:
        return x.sort(axis).values

    def cumulative_sum(self, x: Any, axis: int) -> Any:
        return x.cumsum(axis)

    def getitem(self, x: Any, parts: Sequence[tuple[int, int, int]]) -> Any:
        """Without negative steps, which PyTorch has not: the other way round first."""
        for axis, (low, high, step) in enumerate(parts):
            size = x.shape[axis]
            if step < 0:
                x, low, high, step = x.flip([axis]), size - 1 - low, size - 1 - high, -step
            x = x[(*[slice(None)] * axis, slice(low, high, step))]
        return x


TorchNames = _TorchNames()


def onnx(graph: Graph) -> list[list[Array]]:
    """A model, by Tile and by ONNX's reference evaluator."""
    import tile_onnx
    from onnx.reference import ReferenceEvaluator

    from fuzz.onnx_names import model_of

    model = model_of(graph)
    feeds = {f"x{n}": a for n, a in enumerate(graph.inputs)}
    found = tile_onnx.load(model)(**feeds)
    ours = [found[f"y{n}"] for n in range(len(graph.outputs))]
    return [[np.asarray(a) for a in ours], [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feeds)]]


FRONT_ENDS: dict[str, Callable[[Graph], list[list[Array]]]] = {
    "tensors": tensors,
    "onnx": onnx,
    "torch": torch,
    "jax": jax,
}
"""What each gives for a graph, once or several times."""
