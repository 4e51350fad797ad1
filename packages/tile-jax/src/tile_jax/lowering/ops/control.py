"""Branches and loops: on the device where the number of rounds is known, else decided by the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tile_ir.program.nodes import TensorType
from tile_runtime.ops.values import Value, is_known

from tile_jax.lowering.counting import counter
from tile_jax.lowering.elements import elementwise, where
from tile_jax.lowering.errors import Unlooped
from tile_jax.lowering.mlir import Block, Operation
from tile_jax.lowering.op import Op
from tile_jax.lowering.recorder import Recorder, Slots
from tile_jax.lowering.registry import operation
from tile_jax.lowering.rounds import on_device
from tile_jax.lowering.scope import TOKEN, Poison, Poisoned, Scope
from tile_jax.lowering.tensors import is_tensor, tensor_type
from tile_jax.program import CaseStep, Program, WhileStep

CHEAP = 64
"""Operations of all branches together up to which all are computed, and one result is selected."""


# --- branches ---------------------------------------------------------------------------------------------


@operation("stablehlo.if")
def if_(op: Op) -> tuple[Value, ...]:
    return _branches(op, [op.region(0), op.region(1)], ("{0}", "(~{0})"))


@operation("stablehlo.case")
def case(op: Op) -> tuple[Value, ...]:
    """The branch of an index; beyond the range the last one."""
    blocks = [op.region(k) for k in range(len(op.operation.regions))]
    return _branches(op, blocks, [f"({{0}} == {k})" for k in range(len(blocks))])


def _branches(op: Op, blocks: Sequence[Block], tests: Sequence[str]) -> tuple[Value, ...]:
    index = op.values[0]
    if is_known(index):
        number = int(index) if op.name == "stablehlo.case" else int(not index)
        chosen = number if 0 <= number < len(blocks) else -1
        return tuple(op.walk.block(blocks[chosen], [], op.scope))
    if len(blocks) == 1:
        return tuple(op.walk.block(blocks[0], [], op.scope))
    if op.walk.tracing or (sum(map(_size, blocks)) <= CHEAP and not any(map(_loops, blocks))):
        return _all_computed(op, blocks, tests)
    return tuple(_by_host(op, blocks))


def _size(block: Block) -> int:
    """Operations in a block and in the regions inside; what a call does counts as many."""
    return sum(_own_size(o.operation) for o in block.operations)


def _own_size(operation: Operation) -> int:
    if operation.name in _COSTLY:
        return CHEAP
    return 1 + sum(_size(b) for r in operation.regions for b in r.blocks)


_COSTLY = {"func.call", "stablehlo.dot_general", "stablehlo.convolution", "stablehlo.sort", "stablehlo.custom_call"}


def _loops(block: Block) -> bool:
    return any(o.operation.name == "stablehlo.while" or any(_loops(b) for r in o.operation.regions for b in r.blocks)
               for o in block.operations)  # fmt: skip


def _all_computed(op: Op, blocks: Sequence[Block], tests: Sequence[str]) -> tuple[Value, ...]:
    made = [op.walk.block(block, [], op.scope) for block in blocks]
    if any(isinstance(v, Poison) for values in made for v in values):
        raise Poisoned
    chosen = made[-1]
    for k in reversed(range(len(blocks) - 1)):
        holds = elementwise(tests[k], op.values[0])
        chosen = [_either(holds, one, other) for one, other in zip(made[k], chosen, strict=True)]
    return tuple(chosen)


def _either(holds: Value, one: Value, other: Value) -> Value:
    return one if one is other else where(holds, one, other, one.shape)


def _by_host(op: Op, blocks: Sequence[Block]) -> list[Value]:
    """A program for each branch, one of which runs."""
    inner = [_Inside(op) for _ in blocks]
    programs = tuple(part.program(part.walk(block, [])) for part, block in zip(inner, blocks, strict=True))
    taken = [part.captured() for part in inner]
    index = op.values[0] if op.name == "stablehlo.case" else elementwise("as_int(~{0}, 32)", op.values[0])

    def step(reads: Slots, writes: Slots) -> CaseStep:
        return CaseStep(reads[0], programs, _divided(reads[1:], list(map(len, taken))), writes)

    return _with_tokens(op, op.scope.recorder.host([index, *(v for own in taken for v in own)], _types(op), step))


def _divided(slots: Slots, counts: Sequence[int]) -> tuple[Slots, ...]:
    """Slots in groups of so many."""
    ends = [sum(counts[: k + 1]) for k in range(len(counts))]
    return tuple(slots[end - count : end] for end, count in zip(ends, counts, strict=True))


def _types(op: Op) -> list[TensorType]:
    """Of the results that are tensors."""
    return [tensor_type(r.type) for r in op.operation.results if is_tensor(r.type)]


def _with_tokens(op: Op, made: Sequence[Value]) -> list[Value]:
    found = iter(made)
    return [next(found) if is_tensor(r.type) else TOKEN for r in op.operation.results]


class _Inside:
    """A program within a program that is being made."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._recorder = Recorder()
        self._scope = Scope(self._recorder, op.scope, captured={})

    def input(self, type: TensorType) -> Value:
        return self._recorder.input(type)

    def walk(self, block: Block, values: Sequence[Value]) -> list[Value]:
        made = self._op.walk.enter(block, values, Scope(self._recorder, self._scope))
        if any(isinstance(v, Poison) for v in made):
            raise Poisoned
        return made

    def captured(self) -> list[Value]:
        """What it takes from around it, after its own inputs."""
        return list((self._scope.captured or {}).values())

    def program(self, results: Sequence[Value]) -> Program:
        return self._recorder.program([r for r in results if r is not TOKEN])


# --- loops ------------------------------------------------------------------------------------------------


@operation("stablehlo.while")
def while_(op: Op) -> tuple[Value, ...]:
    """Counted loops go round on the device, or on the host where their bodies cannot be one; so do all others."""
    found = counter(op.region(0), op.region(1), op.values)
    if found is not None and found.trips == 0:
        return tuple(op.values)
    if found is not None:
        made = op.walk.attempt(partial(on_device, op, found))
        if made is not None:
            return tuple(made)
    if op.walk.tracing:
        raise Unlooped
    return tuple(_by_rounds(op))


def _by_rounds(op: Op) -> list[Value]:
    """A loop whose test the host reads."""
    carry, types = [v for v in op.values if v is not TOKEN], _types(op)
    test, turn = _Inside(op), _Inside(op)
    goes = test.walk(op.region(0), _inputs(op, test, types))
    after = turn.walk(op.region(1), _inputs(op, turn, types))
    programs = test.program(goes), turn.program([*after, *turn.walk(op.region(0), after)])
    taken = [carry, test.captured(), turn.captured()]

    def step(reads: Slots, writes: Slots) -> WhileStep:
        carried, tested, captured = _divided(reads, list(map(len, taken)))
        return WhileStep(*programs, carried, tested, captured, writes)

    return _with_tokens(op, op.scope.recorder.host([v for own in taken for v in own], types, step))


def _inputs(op: Op, inside: _Inside, types: Sequence[TensorType]) -> list[Value]:
    return _with_tokens(op, [inside.input(type) for type in types])
