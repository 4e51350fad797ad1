"""Branches and loops: on the device where the number of rounds is known, else decided by the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_runtime.loops import repeat
from tile_runtime.ops.values import Value, is_known, symbol

from tile_jax.lowering.counting import counter, returned
from tile_jax.lowering.elements import elementwise, full, where
from tile_jax.lowering.errors import Unlooped
from tile_jax.lowering.mlir import Block, Operation
from tile_jax.lowering.op import Op
from tile_jax.lowering.recorder import Recorder, Slots
from tile_jax.lowering.registry import operation
from tile_jax.lowering.rounds import on_device
from tile_jax.lowering.scope import TOKEN, Poison, Poisoned, Scope
from tile_jax.lowering.tensors import is_tensor, tensor_type
from tile_jax.lowering.work import work
from tile_jax.program import CaseStep, Program, WhileStep

CHEAP = 64
"""Operations of all branches together up to which all are computed, and one result is selected."""
MOST_ROUNDS = 128
"""Of a program whose loop data ends: as small as they may be, together they take as long as a call of it does."""
ENOUGH = 1 << 16
"""Sums of two numbers, in all rounds of such a program: so many are computed in the time of a call, and some for nothing at the end."""


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
    several = min(MOST_ROUNDS, ENOUGH // sum(work(op.region(k), op.walk.functions) for k in range(2)))
    made = op.walk.attempt(partial(_by_several, op, several)) if several > 1 else None
    return tuple(_by_rounds(op) if made is None else made)


def _by_several(op: Op, several: int) -> list[Value]:
    """A loop of which some rounds are computed at a time: the first with what stands around the loop, and more if these end none.

    Rounds behind the last one leave what is carried as it is. Whether there are more says the test before the last that was tried.
    """
    if any(v is TOKEN for v in op.values):
        raise Unlooped
    types, go, turn = _types(op), _Inside(op), _Inside(op)
    *first, goes_on = _rounds(op, op.values, partial(op.walk.block, scope=op.scope), several)
    after = turn.program(_rounds(op, _inputs(op, turn, types), turn.walk, several))
    *_, begins = *_inputs(op, go, types), go.input(TensorType(DType.BOOL, ()))
    return _host_loop(op, (go.program([begins]), after), [first, [goes_on], turn.captured()], several)


def _rounds(op: Op, values: Sequence[Value], walk: Callable[..., list[Value]], several: int) -> list[Value]:
    """What is carried behind so many rounds, and whether the last one counts."""
    changed = [k for k, value in enumerate(returned(op.region(1))) if value != op.region(1).arguments[k]]

    def filled(state: Sequence[Value]) -> list[Value]:
        found = dict(enumerate(values)) | dict(zip(changed, state, strict=True))
        return [found[k] for k in range(len(values))]

    def step(state: Sequence[Value]) -> tuple[Value, ...]:
        carry = filled(state[:-1])
        (holds,), after = walk(op.region(0), carry), walk(op.region(1), carry)
        if any(isinstance(v, Poison) for v in (holds, *after)):
            raise Poisoned
        return *(where(holds, after[k], carry[k], carry[k].shape) for k in changed), holds

    start = (*(symbol(values[k]) for k in changed), symbol(full(True, DType.BOOL)))
    *state, holds = repeat(step, start, several)
    return [*filled(state), holds]


def _by_rounds(op: Op) -> list[Value]:
    """A loop whose test the host reads."""
    types = _types(op)
    test, turn = _Inside(op), _Inside(op)
    goes = test.walk(op.region(0), _inputs(op, test, types))
    after = turn.walk(op.region(1), _inputs(op, turn, types))
    programs = test.program(goes), turn.program([*after, *turn.walk(op.region(0), after)])
    carry = [v for v in op.values if v is not TOKEN]
    return _host_loop(op, programs, [carry, test.captured(), turn.captured()])


def _host_loop(
    op: Op, programs: tuple[Program, Program], taken: Sequence[Sequence[Value]], rounds: int = 1
) -> list[Value]:
    """The step of the host for a condition and a body: from what is carried, and what each of them captures."""

    def step(reads: Slots, writes: Slots) -> WhileStep:
        carried, tested, captured = _divided(reads, list(map(len, taken)))
        return WhileStep(*programs, carried, tested, captured, writes, rounds)

    return _with_tokens(op, op.scope.recorder.host([v for own in taken for v in own], _types(op), step))


def _inputs(op: Op, inside: _Inside, types: Sequence[TensorType]) -> list[Value]:
    return _with_tokens(op, [inside.input(type) for type in types])
