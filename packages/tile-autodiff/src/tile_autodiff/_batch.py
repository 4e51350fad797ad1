"""A program for many inputs at once: every operation gets one more index, in front, where it reads what has one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tile_ir.names import fresh
from tile_ir.program.copies import copied
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import (
    Argsort,
    Constraint,
    Contraction,
    CustomGradient,
    Elementwise,
    Gather,
    Lookup,
    Loop,
    Op,
    Param,
    Poly,
    Prng,
    Program,
    Reshape,
    Scatter,
    Subscript,
    TensorLoad,
    TensorType,
    coordinates,
    results_of,
)

from tile_autodiff._emit import Graph
from tile_autodiff._tile import statement_text

_FIRST = Poly.of({"i0": 1})


def batched(
    program: Program, axes: Mapping[str, int], size: int, results: Mapping[str, int | None] | int = 0
) -> Program:
    """`program` for `size` values of some inputs at once.

    `axes` has the inputs that have one more axis, and where it stands in them. `results` says where it stands in the
    outputs, by public name or for all; None: the output must not depend on `axes` (ValueError names one that does).
    Other inputs are the same for all. What depends on none of `axes` is computed once.
    """
    inputs = tuple(replace(p, type=_with(p.type, size, axes.get(p.name))) for p in program.inputs)
    batch = _Batch(size, Graph(replace(program, inputs=inputs, ops=(), gradients=())), program.types())
    # What the program calls its values is taken, though its operations are yet to come.
    batch.graph.types = {**batch.types, **{p.name: p.type for p in inputs}}
    for name, axis in axes.items():
        batch.names[name] = batch.moved(name, axis, 0)
    batch.run(program)
    outputs: list[tuple[str, str]] = []
    for public, value in program.outputs:
        axis = results if isinstance(results, int) else results[public]
        if axis is None and value in batch.names:
            raise ValueError(f"output {public} depends on the axis")
        outputs.append((public, batch.plain(value) if axis is None else batch.moved(batch.given(value), 0, axis)))
    rules = tuple(batch.rule(r) for r in program.gradients)
    return Program(f"vmap_{program.name}", inputs, tuple(batch.graph.ops), tuple(outputs), rules)


def _with(type_: TensorType, size: int, axis: int | None) -> TensorType:
    if axis is None:
        return type_
    return TensorType(type_.dtype, (*type_.shape[:axis], size, *type_.shape[axis:]))


@dataclass(slots=True)
class _Batch:
    """A program being rewritten."""

    size: int
    graph: Graph
    types: dict[str, TensorType]
    """Types of all values before."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Values that have the new axis, as the first one, by the names they had."""

    def run(self, program: Program) -> None:
        for op in program.ops:
            self.graph.origin = op.origin
            if not any(name in self.names for name in used_by(op)):
                self.link(op)
            elif isinstance(op, Loop):
                _loop(self, op)
            else:
                self.link(_RULES[type(op)](self, op))
                self.names.update((name, name) for name in defined_by(op))
        self.graph.origin = None

    def link(self, op: Op) -> None:
        self.graph.types.update(results_of(op))
        self.graph.link(op)

    # --- values --------------------------------------------------------------------------------------

    def plain(self, name: str) -> str:
        return self.names.get(name, name)

    def has(self, name: object) -> bool:
        return isinstance(name, str) and name in self.names

    def given(self, name: str) -> str:
        """A value with the new axis, whether it had it or not."""
        return self.names[name] if name in self.names else self.spread(name)

    def spread(self, name: str) -> str:
        return self.graph.stretched(name, (self.size, *self.graph.types[name].shape))

    def typed(self, type_: TensorType) -> TensorType:
        return _with(type_, self.size, 0)

    def moved(self, name: str, source: int, target: int) -> str:
        """The value with an axis moved to another place."""
        if source == target:
            return name
        type_ = self.graph.types[name]
        order = [k for k in range(len(type_.shape)) if k != source]
        order.insert(target, source)
        cells, made = coordinates(len(order)), TensorType(type_.dtype, tuple(type_.shape[k] for k in order))
        output, sizes = tuple(cells[k] for k in order), zip(cells, type_.shape, strict=True)
        return self.graph.add(copied(self.graph.fresh("M"), made, output, name, cells, sizes))

    # --- gradients by hand ---------------------------------------------------------------------------

    def rule(self, rule: CustomGradient) -> CustomGradient:
        """A gradient given by hand, for many at once."""
        if not any(map(self.has, (*rule.inputs, *rule.outputs))):
            return rule
        names = [*rule.inputs, *rule.outputs, *rule.outputs]
        params = rule.backward.inputs
        axes = {p.name: 0 for p, name in zip(params, names, strict=True) if self.has(name)}
        backward = batched(rule.backward, axes, self.size)
        graph, outputs = Graph(backward), list[tuple[str, str]]()
        for name, (public, value) in zip(rule.inputs, backward.outputs, strict=False):
            if not self.has(name):  # the same input for all: its derivatives add up
                whole = graph.types[value].shape
                value = graph.reshaped(graph.summed_to(value, (1, *whole[1:])), whole[1:])
            outputs.append((public, value))
        inputs, results = (tuple(map(self.plain, names)) for names in (rule.inputs, rule.outputs))
        return CustomGradient(inputs, results, replace(backward, ops=tuple(graph.ops), outputs=tuple(outputs)))


# --- one function per kind of operation ------------------------------------------------------------------


def _elementwise(batch: _Batch, op: Elementwise) -> Op:
    rank = len(op.type.shape)

    def lined_up(name: str) -> str:
        shape = batch.types[name].shape
        ones = (1,) * (rank - len(shape))
        return batch.graph.reshaped(batch.names[name], (batch.size, *ones, *shape))

    args = tuple(lined_up(a) if isinstance(a, str) and batch.has(a) else a for a in op.args)
    return replace(op, type=batch.typed(op.type), args=args)


def _reshape(batch: _Batch, op: Reshape) -> Op:
    return replace(op, type=batch.typed(op.type), arg=batch.names[op.arg])


def _argsort(batch: _Batch, op: Argsort) -> Op:
    return replace(op, type=batch.typed(op.type), arg=batch.names[op.arg], axis=op.axis + 1)


def _contraction(batch: _Batch, op: Contraction) -> Op:
    index = fresh("b", op.indexes)
    which = Poly.of({index: 1})

    def load(given: TensorLoad) -> TensorLoad:
        if not (isinstance(given.tensor, str) and batch.has(given.tensor)):
            return given
        return replace(given, tensor=batch.names[given.tensor], formulas=(which, *given.formulas))

    made = replace(
        op, type=batch.typed(op.type), indexes=(index, *op.indexes), output=(which, *op.output),
        constraints=(Constraint(which, batch.size), *op.constraints), loads=tuple(map(load, op.loads)),
        default=None if op.default is None else batch.given(op.default), text="",
    )  # fmt: skip
    return replace(made, text=statement_text(made, {**batch.graph.types, made.name: made.type}))


def _subscripts(batch: _Batch, given: Sequence[Subscript]) -> tuple[Subscript, ...]:
    """Subscripts of a cell whose coordinates have one more in front."""

    def moved(formula: Poly) -> Poly:
        return Poly.of({f"i{int(name[1:]) + 1}": c for name, c in formula.terms}, formula.const)

    def entry(subscript: Subscript) -> Subscript:
        if isinstance(subscript, Poly):
            return moved(subscript)
        formulas = tuple(map(moved, subscript.formulas))
        own = batch.has(subscript.tensor)
        return Lookup(batch.plain(subscript.tensor), (_FIRST, *formulas) if own else formulas)

    return tuple(map(entry, given))


def _gather(batch: _Batch, op: Gather) -> Op:
    first = (_FIRST,) if batch.has(op.data) else ()
    subscripts = (*first, *_subscripts(batch, op.subscripts))
    return replace(op, type=batch.typed(op.type), data=batch.plain(op.data), subscripts=subscripts)


def _scatter(batch: _Batch, op: Scatter) -> Op:
    return replace(
        op, type=batch.typed(op.type), updates=batch.given(op.updates),
        subscripts=(_FIRST, *_subscripts(batch, op.subscripts)),
        default=None if op.default is None else batch.given(op.default),
    )  # fmt: skip


def _prng(batch: _Batch, op: Prng) -> Op:
    """Each state draws by itself, one after the other: a state is the work of 2048 generators."""
    types, names = (op.type, batch.types[op.seed]), (op.value, op.state)
    seed = fresh("Seed", names)
    body = Program("draw", (Param(seed, types[1]),), (replace(op, seed=seed),), tuple((n, n) for n in names))
    return Loop(names, tuple(map(batch.typed, types)), body, batch.size, (), (batch.names[op.seed],))


def _loop(batch: _Batch, op: Loop) -> None:
    """The same rounds, of a body for many: rows are cut along axis 0, so that the new axis is the second one in stacks."""
    params, carried = op.body.inputs, len(op.carries)
    outside = (*op.carries, *op.slices, *op.captured)
    inside, found = _varying(op, {name for name in outside if batch.has(name)})
    own = [value in found or (k in inside and k < carried) for k, (_, value) in enumerate(op.body.outputs)]
    ends = {public: 0 if has else None for (public, _), has in zip(op.body.outputs, own, strict=True)}
    made = replace(
        op, body=batched(op.body, {params[k].name: 0 for k in inside}, batch.size, ends),
        carries=tuple(batch.given(n) if k in inside else n for k, n in enumerate(op.carries)),
        slices=tuple(batch.moved(batch.names[n], 0, 1) if batch.has(n) else n for n in op.slices),
        captured=tuple(map(batch.plain, op.captured)),
        types=tuple(_with(t, batch.size, int(k >= carried) if own[k] else None) for k, t in enumerate(op.types)),
    )  # fmt: skip
    batch.link(made)
    for k, name in enumerate(op.results):
        if own[k]:
            batch.names[name] = batch.moved(name, int(k >= carried), 0)


def _varying(op: Loop, given: Collection[str]) -> tuple[set[int], set[str]]:
    """Which inputs of a loop's body depend on values outside, in some round, and the values of the body that do."""
    outside = (*op.carries, *op.slices, *op.captured)
    inside = {k for k, name in enumerate(outside) if name in given}
    while True:
        found = _depending(op.body, [op.body.inputs[k].name for k in inside])
        carried = {k for k, (_, value) in enumerate(op.body.outputs[: len(op.carries)]) if value in found}
        if carried <= inside:
            return inside, found
        inside |= carried


def _depending(program: Program, inputs: Collection[str]) -> set[str]:
    """The values of a program that depend on some inputs."""
    found = set(inputs)
    for op in program.ops:
        if not isinstance(op, Loop):
            found.update(defined_by(op) if not found.isdisjoint(used_by(op)) else ())
            continue
        inside, values = _varying(op, found)
        ends = enumerate(zip(op.results, op.body.outputs, strict=True))
        found.update(n for k, (n, (_, v)) in ends if v in values or (k in inside and k < len(op.carries)))
    return found


_RULES: dict[type, Callable[[_Batch, Any], Op]] = {
    Elementwise: _elementwise,
    Reshape: _reshape,
    Argsort: _argsort,
    Contraction: _contraction,
    Gather: _gather,
    Scatter: _scatter,
    Prng: _prng,
}
"""Loops are apart (some of their results may do without the axis); IndexOf and ConstantTensor read nothing."""
