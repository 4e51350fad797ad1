"""Names that other libraries have and this package has not, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

_ARRAY = "tile.asarray(x) puts an array on a device; tile_runtime.numpy has zeros, ones, arange and others"
_ROUNDS = "tile.repeat(step, init, n), tile.scan(step, init, xs) and tile.while_loop(cond, step, init) are loops"
_CHOICE = "tile_runtime.numpy.where(test, a, b) chooses, element by element"
_LAYERS = "the package tile_nn has layers, losses and optimisers"
_FREE = "nothing is recorded for gradients: tile.grad and tile.value_and_grad differentiate functions"
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("array", "tensor", "zeros", "ones", "full", "arange", "empty", "from_numpy", "device_put"), _ARRAY),
    **dict.fromkeys(("fori_loop", "for_loop", "loop", "lax"), _ROUNDS),
    **dict.fromkeys(("cond", "select", "switch", "where"), _CHOICE),
    **dict.fromkeys(("nn", "optim", "Module", "Parameter"), _LAYERS),
    **dict.fromkeys(("no_grad", "backward", "GradientTape", "stop_gradient", "autograd"), _FREE),
    **dict.fromkeys(("jacobian", "jacrev", "jacfwd", "hessian"), "tile.vmap of tile.grad, tile.vjp or tile.jvp gives one, row by row"),
    **dict.fromkeys(("pmap", "shard_map"), "the package tile_dask divides functions among devices and machines"),
    **dict.fromkeys(("checkpoint", "remat"), "tile.scan and tile.repeat take checkpoint=k"),
    **dict.fromkeys(("compile", "function", "njit"), "tile.jit compiles a Python function, tile.Function a Tile text"),
    **dict.fromkeys(("save", "load"), "tile_nn.save and tile_nn.load keep trees of tensors"),
    "exp": "tile_runtime.numpy has the functions of arrays",
    "tree": "tile.tree_map and tile.tree_leaves take trees apart",
    "map": "tile.vmap maps a function over an axis, tile.scan goes through rows one by one",
    "einsum": "tile_runtime.numpy.einsum",
    "ops": "import tile_runtime.ops: its submodules write operators of any rank",
}  # fmt: skip


def reason(name: str, known: Sequence[str]) -> str:
    """What the error for a missing name says."""
    why = INSTEAD.get(name)
    close = get_close_matches(name, known, n=2, cutoff=0.75)
    why = why or (f"did you mean {' or '.join(close)}?" if close else "")
    return f"module 'tile_runtime' has no attribute {name!r}" + (f": {why}" if why else "")
