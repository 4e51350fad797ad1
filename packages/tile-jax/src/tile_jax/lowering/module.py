"""Walks a module of StableHLO and composes Tile programs of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_runtime.compose import Composition
from tile_runtime.provenance import provenance
from tile_runtime.symbols import Symbol, constant, placeholder

from tile_jax.lowering.attributes import label, python, tensor_type
from tile_jax.lowering.mlir import context, parsed
from tile_jax.lowering.registry import Op, Value, converters
from tile_jax.program import DeviceStep, Program

_RETURNS = {"func.return", "stablehlo.return"}
_DONATED = ("tf.aliasing_output", "jax.buffer_donor")
"""Attributes of arguments whose memory the caller gives up."""


def lowered(code: bytes) -> Program:
    """The program of a module, as a portable artifact or MLIR's text.

    TileTypeError naming all operations that cannot run, and where they come from.
    """
    with context():
        module = parsed(code)
        functions = {f.name.value: f for f in module.body.operations if f.operation.name == "func.func"}
        _check(functions.values())
        return _Walk(functions).main(_name(module))


def _name(module: Any) -> str:
    attributes = module.operation.attributes
    return python(attributes["sym_name"]) if "sym_name" in attributes else "jit"


def _check(functions: Any) -> None:
    """TileTypeError naming every operation that has no converter."""
    known = {*converters(), *_RETURNS, "func.call"}
    missing: Counter[tuple[str, str]] = Counter()
    for function in functions:
        _count(function.operation, known, missing)
    if missing:
        found = ", ".join(f"{name} ({n} times, first {place or 'somewhere'})" for (name, place), n in missing.items())
        raise TileTypeError(Diagnostic("TILE-E956", f"operations that tile-jax cannot run: {found}"))


def _count(operation: Any, known: set[str], missing: Counter[tuple[str, str]]) -> None:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                name = inner.operation.name
                if name not in known:
                    seen = next((k for k in missing if k[0] == name), (name, label(inner.location)))
                    missing[seen] += 1
                _count(inner.operation, known, missing)


class _Walk:
    """Goes over operations in order; calls are walked in place."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self._functions = functions
        self._converters = converters()

    def main(self, name: str) -> Program:
        """The program of the function `main`."""
        main = self._functions["main"]
        block = main.regions[0].blocks[0]
        types = tuple(tensor_type(a.type) for a in block.arguments)
        inputs = [placeholder(t.dtype, t.shape, f"arg{k}") for k, t in enumerate(types)]
        results = [_symbol(v) for v in self.block(block, inputs, {})]
        outputs = tuple(tensor_type(t) for t in main.type.results)
        slots = tuple(range(len(inputs), len(inputs) + len(results)))
        steps = (_step(inputs, results, slots),) if results else ()
        return Program(name, types, outputs, steps, slots, _donated(main, len(inputs)))

    def block(self, block: Any, values: Sequence[Value], outside: dict[Any, Value]) -> list[Value]:
        """What a block returns for its arguments."""
        known = {**outside, **dict(zip(block.arguments, values, strict=True))}
        for operation in block.operations:
            inner = operation.operation
            operands = tuple(known[v] for v in inner.operands)
            if inner.name in _RETURNS:
                return list(operands)
            made = self._made(inner, operands, known)
            known.update(zip(inner.results, made, strict=True))
        return []

    def _made(self, operation: Any, operands: tuple[Value, ...], known: dict[Any, Value]) -> Sequence[Value]:
        if operation.name == "func.call":
            callee = self._functions[python(operation.attributes["callee"])]
            return self.block(callee.regions[0].blocks[0], operands, {})
        op = self._op(operation, operands, known)
        with provenance(label(operation.location)):
            made = self._converters[operation.name](op)
        return cast("tuple[Value, ...]", made) if isinstance(made, tuple) else (made,)

    def _op(self, operation: Any, operands: tuple[Value, ...], known: dict[Any, Value]) -> Op:
        attributes = operation.attributes
        types = tuple(tensor_type(r.type) for r in operation.results)
        regions = tuple(self._region(region.blocks[0], known) for region in operation.regions)

        def attribute(name: str) -> Any:
            return python(attributes[name]) if name in attributes else None

        return Op(operation.name, operands, types, attribute, regions)

    def _region(self, block: Any, known: dict[Any, Value]) -> Callable[[Sequence[Value]], list[Value]]:
        """What a region returns for its arguments; it sees the values around it."""
        return lambda values: self.block(block, values, known)


def _step(inputs: list[Symbol], results: list[Symbol], slots: tuple[int, ...]) -> DeviceStep:
    function = Composition(inputs, {f"out{k}": r for k, r in enumerate(results)}, ())
    return DeviceStep(function, tuple(range(len(inputs))), slots)


def _symbol(value: Value) -> Symbol:
    return constant(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def _donated(main: Any, count: int) -> tuple[int, ...]:
    if "arg_attrs" not in main.attributes:
        return ()
    given = main.attributes["arg_attrs"]
    return tuple(k for k in range(count) if any(name in given[k] for name in _DONATED))
