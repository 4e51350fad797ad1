"""What JAX is told to write for the platform `tile` where it has a form for its own platforms alone: calls of the host.

A decomposition of `jax.lax.linalg` becomes a custom call that names it and states its options; a callback of Python's
becomes one that names the function, which lives as long as the program does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from tile_jax.hosted import DECOMPOSITIONS, MARK, Called, call_key

Rule = Callable[..., Any]


def register() -> None:
    """Tells JAX; the platform is known by then."""
    linalg, mlir = import_module("jax._src.lax.linalg"), _mlir()
    for name in DECOMPOSITIONS:
        mlir.register_lowering(getattr(linalg, f"{name}_p"), partial(_decomposed, name), platform="tile")
    mlir.register_lowering(import_module("jax._src.lax.ann").approx_top_k_p, _top_k, platform="tile")
    callbacks, debugging = import_module("jax._src.callback"), import_module("jax._src.debugging")
    for primitive, rule in (
        (callbacks.pure_callback_p, _called_back),
        (callbacks.io_callback_p, _called_back),
        (debugging.debug_callback_p, _called_back),
        (debugging.debug_print_p, _printed),
    ):
        mlir.register_lowering(primitive, rule, platform="tile", cacheable=False)


def _mlir() -> Any:
    return import_module("jax._src.interpreters.mlir")


def _decomposed(name: str, context: Any, *operands: Any, **options: Any) -> Any:
    """The call of a decomposition, with its options as JSON."""
    return _call(context, f"{MARK}{name}", operands, json.dumps(options, default=str), effect=False)


def _top_k(context: Any, operand: Any, *, reduction_dimension: int, is_max_k: bool, **_: Any) -> Any:
    """The largest or smallest exactly, where JAX would be content with most of them."""
    lax: Any = import_module("jax.lax")
    count = context.avals_out[0].shape[reduction_dimension]

    def exact(values: Any) -> Any:
        moved = values.swapaxes(reduction_dimension, -1)
        found, places = lax.top_k(moved if is_max_k else -moved, count)
        found = found if is_max_k else -found
        return found.swapaxes(reduction_dimension, -1), places.swapaxes(reduction_dimension, -1)

    return _mlir().lower_fun(exact, multiple_results=True)(context, operand)


def _called_back(context: Any, *operands: Any, callback: Callable[..., Any], **options: Any) -> Any:
    """The call of a function of Python's. Calls are in the program's order, so that their tokens have nothing to say."""
    called = Called(callback, tuple((a.shape, a.dtype) for a in context.avals_out))
    context.module_context.add_keepalive(called)
    if context.tokens_in is not None:
        context.set_tokens_out(context.tokens_in)
    return _call(context, f"{MARK}callback", operands, call_key(called), effect=True)


def _printed(context: Any, *operands: Any, fmt: str, in_tree: Any, static_args: Any, np_printoptions: Any,
             has_placeholders: bool, logging_record: Any, **options: Any) -> Any:  # fmt: skip
    """The call of what `jax.debug.print` prints with."""
    debugging = import_module("jax._src.debugging")
    shown = partial(debugging._format_print_callback, fmt, dict(np_printoptions), has_placeholders, logging_record)
    flat = debugging._make_flat_callback(in_tree, shown, static_args)
    return _called_back(context, *operands, callback=flat)


def _call(context: Any, target: str, operands: Sequence[Any], config: str, *, effect: bool) -> Any:
    mlir = _mlir()
    types = [mlir.aval_to_ir_type(context.module_context, aval) for aval in context.avals_out]
    made = mlir.custom_call(
        target, result_types=types, operands=operands, backend_config=config, has_side_effect=effect
    )
    return made.results
