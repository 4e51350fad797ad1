"""Modules of StableHLO, and the programs they become."""

from __future__ import annotations

from typing import Any

from tile_jax.lowering.errors import refusal
from tile_jax.lowering.mlir import context, parsed
from tile_jax.lowering.parts import shard, whole
from tile_jax.lowering.walk import Walk
from tile_jax.program import Program

_DONATED = ("tf.aliasing_output", "jax.buffer_donor")
"""Attributes of arguments whose memory the caller gives up."""


def lowered(code: bytes) -> Program:
    """The program of a module, as a portable artifact or MLIR's text.

    TileTypeError naming all operations that cannot run, and where they come from.
    """
    with context():
        return program(parsed(code))


def program(module: Any) -> Program:
    """The program of a module's function ``main``: StableHLO and CHLO of static shapes.

    One TileTypeError (TILE-E956) names every operation that is not supported, with JAX's name and the user's line.
    """
    walk = Walk(module)
    main = walk.functions["main"]
    part = whole(main) if walk.devices == 1 else shard(main, walk.devices)
    made = walk.program(part, _name(module), _donated(main))
    if made is None:
        raise refusal(walk.problems) from walk.cause
    return made


def _name(module: Any) -> str:
    attributes = module.operation.attributes
    return attributes["sym_name"].value if "sym_name" in attributes else "jit"


def _donated(main: Any) -> tuple[int, ...]:
    if "arg_attrs" not in main.attributes:
        return ()
    given = main.attributes["arg_attrs"]
    return tuple(k for k in range(len(given)) if any(name in given[k] for name in _DONATED))
