"""Walks a module: known values are computed now, everything else becomes compositions of Tile functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from tile_ir.diagnostics import TileError, TileInternalError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_runtime.ops.unsupported import Unsupported, explained
from tile_runtime.ops.values import NotInTile, Value, as_array, dtype_of
from tile_runtime.provenance import provenance

from tile_jax.lowering import complexes
from tile_jax.lowering.decomposed import decomposed
from tile_jax.lowering.elements import full
from tile_jax.lowering.errors import Problem, Unlooped, place
from tile_jax.lowering.mlir import Block, Node, Operation
from tile_jax.lowering.op import Op
from tile_jax.lowering.parts import Part, module_devices
from tile_jax.lowering.recorder import Recorder
from tile_jax.lowering.registry import find
from tile_jax.lowering.scope import TOKEN, Pair, Poison, Poisoned, Row, Scope
from tile_jax.lowering.tensors import is_complex, is_tensor, tensor_type
from tile_jax.program import Program

_RETURNS = frozenset({"func.return", "stablehlo.return", "sdy.return", "mpmd.return"})


class Walk:
    """One walk over a module."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.functions = {
            op.sym_name.value: op.operation for op in module.body.operations if op.operation.name == "func.func"
        }
        self.devices = module_devices(module)
        """How many devices run it in step."""
        self.problems: list[Problem] = []
        self.cause: Exception | None = None
        """The first exception behind them, for whoever mends a converter."""
        self.tracing = 0
        """Loops of the device that are being traced, one inside of the other: their bodies cannot end a program."""
        self.streams = 0
        """Operations so far that draw random numbers without a state."""
        self.apart = False
        """Whether the operations at hand are those of one part of complex numbers."""
        self.pairs: dict[int, Pair] = {}
        """Of complex values whose parts are known, by the identity of the value."""
        self.rows: dict[int, Row] = {}
        """Of updates that replace one row of a value, by the identity of their result."""

    def program(self, part: Part, name: str, donated: tuple[int, ...]) -> Program | None:
        """The program of a part of the module; None where there are problems."""
        recorder = Recorder()
        inputs = [self._input(recorder, k, type) for k, type in enumerate(part.inputs)]
        results = self.block(part.block, [inputs[k] for k in part.arguments], Scope(recorder))
        values = [full(False, DType.BOOL) if r is TOKEN else r for r in part.chosen(results)]
        returned = part.chosen([v.type for v in part.block.operations[len(part.block.operations) - 1].operands])
        complexes = frozenset(k for k, type in enumerate(returned) if is_complex(type))
        return None if self.problems else recorder.program(values, name, donated, complexes)

    def _input(self, recorder: Recorder, k: int, type: Any) -> Value:
        if not is_tensor(type):
            recorder.input(TensorType(DType.BOOL, ()))  # what JAX hands in for a token, and wants for one
            return TOKEN
        try:
            return recorder.input(tensor_type(type))
        except NotInTile as reason:
            self.problems.append(Problem(f"argument {k}", "", str(reason), None))
            return Poison()

    def block(self, block: Block, values: Sequence[Value], scope: Scope, *, lifted: bool = False) -> list[Value]:
        """What a block gives, walked inside of `scope`."""
        inner = Scope(scope.recorder, scope, lifted or scope.lifted)
        return self.enter(block, values, inner)

    def call(self, name: str, values: Sequence[Value], scope: Scope) -> list[Value]:
        """What a function of the module gives; it sees nothing of its caller's values."""
        block = self.functions[name].regions[0].blocks[0]
        return self.enter(block, values, Scope(scope.recorder, None, scope.lifted))

    def enter(self, block: Block, values: Sequence[Value], scope: Scope) -> list[Value]:
        """What a block gives, walked in a scope of its own."""
        for argument, value in zip(block.arguments, values, strict=True):
            self._bind(scope, argument, value)
        for op in block.operations:
            if op.operation.name in _RETURNS:
                return [scope.find(v) for v in op.operation.operands]
            self._operation(op.operation, scope)
        return []

    def _bind(self, scope: Scope, key: Node, value: Value) -> None:
        scope.recorder.made(value)
        scope.values[key] = value

    def _operation(self, operation: Operation, scope: Scope) -> None:
        values = [scope.find(v) for v in operation.operands]
        results = self._results(Op(operation, values, self, scope))
        for key, value in zip(operation.results, results, strict=True):
            self._bind(scope, key, value)

    def _results(self, op: Op) -> Sequence[Value]:
        if any(isinstance(v, Poison) for v in op.values):
            return [Poison()] * len(op.operation.results)
        where = place(op.operation.location)
        try:
            with provenance(where or op.name):
                return self._checked(op, self.converted(op))
        except (Unlooped, TileInternalError):
            raise
        except Poisoned:
            pass  # what is wrong stands among the problems
        except (Unsupported, NotInTile, TileError) as reason:
            self.problems.append(Problem(op.name, where, *explained(reason, str(reason))))
            self.cause = self.cause or reason
        return [Poison()] * len(op.operation.results)

    def converted(self, op: Op) -> Any:
        """What an operation gives: one value, or a tuple of them."""
        if not self.apart and op.complex and op.name not in complexes.AS_THEY_ARE:
            return complexes.converted(op)
        entry = find(op.name)
        if entry is None:
            return decomposed(op)
        if op.lifted and not entry.elementwise:
            raise op.unsupported(
                "it stands in the region of a reduction, sort or scatter, and is no elementwise operation"
            )
        return entry.convert(op)

    def _checked(self, op: Op, results: Any) -> Sequence[Value]:
        """The values, which must be what the text says."""
        several = list(cast("tuple[Value, ...]", results)) if isinstance(results, (tuple, list)) else [results]
        several = [as_array(v) for v in several]
        for value, result in zip(several, op.operation.results, strict=True):
            if is_tensor(result.type) and not op.lifted and not isinstance(value, Poison):
                _check(op, value, tensor_type(result.type))
        return several

    def attempt(self, function: Callable[[], Any]) -> Any:
        """What `function` gives, which traces a loop of the device; None where its body cannot be one."""
        problems, cause = len(self.problems), self.cause
        self.tracing += 1
        try:
            made = function()
            if len(self.problems) == problems:
                return made
        except (Unlooped, Poisoned):
            pass
        finally:
            self.tracing -= 1
        del self.problems[problems:]
        self.cause = cause
        return None


def _check(op: Op, value: Value, type: TensorType) -> None:
    if (dtype_of(value), tuple(value.shape)) != (type.dtype, type.shape):
        made = f"{dtype_of(value)}{list(value.shape)}"
        raise TileInternalError(f"{op.name} gave {made}, not {type} ({place(op.operation.location)})")
