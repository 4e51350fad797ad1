"""What derivative rules write into: a program's graph of tensors, or the scalar body of one contraction.

Both share common subexpressions and drop arithmetic with neutral literals, so rules may be written plainly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.names import fresh
from tile_ir.ops import OPS, Aggregation
from tile_ir.program.liveness import defined_by
from tile_ir.program.macros import literal
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Elementwise,
    Gather,
    Literal,
    Loop,
    Op,
    Operand,
    Poly,
    Prng,
    Program,
    Reshape,
    ScalarStatement,
    Scatter,
    TensorLoad,
    TensorType,
    results_of,
)
from tile_ir.program.rename import renamed

from tile_autodiff._tile import statement_text

Key = tuple[Any, ...]


class Emitter:
    """Scalar operations on operands, with results shared and neutral literals dropped."""

    def emit(self, fn: str, args: Sequence[Operand], dtype: DType) -> Operand:
        """``fn(args…)`` with a result of `dtype`: an operand that holds it."""
        for simpler in _SIMPLER.get(fn, ()):
            found = simpler(args)
            if found is not None:
                return found
        return self._append(fn, tuple(args), dtype)

    def dtype(self, operand: Operand) -> DType:
        """The element type of an operand."""
        raise NotImplementedError

    def _append(self, fn: str, args: tuple[Operand, ...], dtype: DType) -> Operand:
        raise NotImplementedError

    def cast(self, value: Operand, dtype: DType) -> Operand:
        """`value` as `dtype`."""
        if isinstance(value, Literal):
            return literal(value.value, dtype)
        return value if self.dtype(value) is dtype else self.emit("cast", (value,), dtype)

    def total(self, parts: Sequence[Operand], dtype: DType) -> Operand:
        """The sum of one or more operands."""
        result = parts[0]
        for part in parts[1:]:
            result = self.emit("add", (result, part), dtype)
        return result


def _is(operand: Operand, number: float) -> bool:
    return isinstance(operand, Literal) and operand.value == number


def _drop_one(args: Sequence[Operand]) -> Operand | None:
    a, b = args
    return b if _is(a, 1) else a if _is(b, 1) else None


def _divide_by_one(args: Sequence[Operand]) -> Operand | None:
    return args[0] if _is(args[1], 1) else None


def _same_choices(args: Sequence[Operand]) -> Operand | None:
    return args[1] if args[1] == args[2] and isinstance(args[1], str) else None


_SIMPLER: dict[str, tuple[Callable[[Sequence[Operand]], Operand | None], ...]] = {
    "mul": (_drop_one,),
    "div": (_divide_by_one,),
    "cond": (_same_choices,),
}
"""Exact for every value: nothing here turns an infinity or NaN into a number."""


def _call_key(fn: str, args: Sequence[Operand]) -> Key:
    return (fn, *(sorted(args, key=repr) if fn in OPS and OPS[fn].commutative else args))


def op_key(op: Op) -> Key | None:
    """Equal for operations that compute the same; None for those that are not shared."""
    match op:
        case Elementwise():
            return (*_call_key(op.fn, op.args), repr(op.params), op.type)
        case Contraction():
            return (replace(op, name="", text=""),)
        case Prng() | Loop():
            return None
        case _:
            return (type(op), replace(op, name=""))


def merged(program: Program) -> Program:
    """`program` with every operation that computes what an earlier one does left out."""
    names: dict[str, str] = {}
    known: dict[Key, str] = {}
    kept: list[Op] = []
    for op in program.ops:
        # Names of results are unique, so that only what is read needs to be renamed.
        op = renamed(op, names) if names else op
        key = op_key(op)
        if key is not None and key in known:
            names[defined_by(op)[0]] = known[key]
            continue
        if key is not None:
            known[key] = defined_by(op)[0]
        kept.append(op)
    outputs = tuple((public, names.get(value, value)) for public, value in program.outputs)
    return replace(program, ops=tuple(kept), outputs=outputs) if names else program


class Graph(Emitter):
    """A program that grows at its end."""

    def __init__(self, program: Program) -> None:
        self.types = program.types()
        self.ops: list[Op] = []
        self.origin: Span | None = None
        """Where operations come from that are appended without a place of their own."""
        self._shared: dict[Key, str] = {}
        self._counts: dict[str, int] = {}
        """Numbers below which a hint's names are all taken: searching from 1 each time would be quadratic."""
        for op in program.ops:
            self._keep(op)

    def dtype(self, operand: Operand) -> DType:
        return operand.dtype if isinstance(operand, Literal) else self.types[operand].dtype

    def shape(self, operand: Operand) -> tuple[int, ...]:
        return () if isinstance(operand, Literal) else self.types[operand].shape

    def fresh(self, hint: str) -> str:
        """A name that is not taken."""
        name, count = hint, self._counts.get(hint, 0)
        while name in self.types:
            count += 1
            name = f"{hint}_{count}"
        self._counts[hint] = max(count - 1, 0)
        return name

    def add(self, op: Op) -> str:
        """Append an operation that defines one name, or find the one that computes the same."""
        key = op_key(op)
        found = self._shared.get(key) if key is not None else None
        if found is not None:
            return found
        if isinstance(op, Contraction) and not op.text:
            op = replace(op, text=statement_text(op, self.types))
        self._keep(op)
        return defined_by(op)[0]

    def _keep(self, op: Op) -> None:
        if op.origin is None and self.origin is not None:
            op = replace(op, origin=self.origin)
        self.ops.append(op)
        for name, type_ in results_of(op):
            self.types.setdefault(name, type_)
        key = op_key(op)
        if key is not None:
            self._shared.setdefault(key, defined_by(op)[0])

    def link(self, op: Op) -> None:
        """Append an operation under its own, untaken name."""
        self._keep(op)

    def _append(self, fn: str, args: tuple[Operand, ...], dtype: DType) -> Operand:
        shape = broadcast([self.shape(a) for a in args])
        return self.add(Elementwise(self.fresh("G"), TensorType(dtype, shape), fn, args))

    def zeros(self, type_: TensorType) -> str:
        """A tensor of zeros."""
        return self.filled(0, type_, "Zero")

    def filled(self, number: int, type_: TensorType, hint: str = "One") -> str:
        """A tensor of one number."""
        return self.add(Elementwise(self.fresh(hint), type_, "ident", (literal(number, type_.dtype),)))

    def stretched(self, name: str, shape: tuple[int, ...]) -> str:
        """`name` broadcast to `shape`."""
        if self.types[name].shape == shape:
            return name
        return self.add(Elementwise(self.fresh("G"), TensorType(self.dtype(name), shape), "ident", (name,)))

    def reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        if self.types[name].shape == shape:
            return name
        return self.add(Reshape(self.fresh("G"), TensorType(self.dtype(name), shape), name))

    def summed_to(self, name: str, shape: tuple[int, ...]) -> str:
        """Undo a broadcast from `shape`: sum over the axes that `shape` lacks or where it has size 1."""
        have = self.types[name].shape
        lead = len(have) - len(shape)
        indexes = tuple(f"i{k}" for k in range(len(have)))
        forms = tuple(Poly.of({n: 1}) for n in indexes)
        stretched = [extent == 1 and have[lead + k] != 1 for k, extent in enumerate(shape)]
        if not any(stretched) and all(extent == 1 for extent in have[:lead]):
            return self.reshaped(name, shape)
        output = tuple(Poly() if stretched[k] else forms[lead + k] for k in range(len(shape)))
        ranges = (*zip(output, shape, strict=True), *zip(forms, have, strict=True))
        dtype = self.dtype(name)
        return self.add(
            Contraction(
                self.fresh("G"),
                TensorType(dtype, shape),
                Aggregation.SUM,
                indexes,
                output,
                tuple(Constraint(f, s) for f, s in ranges),
                (TensorLoad("$0", name, forms),),
                (),
                "$0",
                dtype.accumulator,
            )
        )


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape of shapes that fit (the program was checked when it was bound)."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True))


class Body(Emitter):
    """The loads and scalar statements of one contraction, growing at the end."""

    def __init__(self, op: Contraction, graph: Graph) -> None:
        self.op = op
        self.graph = graph
        self.loads = list(op.loads)
        self.statements = list(op.body)
        self._dtypes = {load.dst: graph.dtype(load.tensor) for load in op.loads}
        self._dtypes |= {s.dst: s.dtype for s in op.body}
        self._shared: dict[Key, str] = {}
        for statement in op.body:
            self._shared.setdefault((*_call_key(statement.fn, statement.args), statement.dtype), statement.dst)

    def fork(self) -> Body:
        """A copy that grows by itself."""
        copy = Body.__new__(Body)
        copy.op, copy.graph = self.op, self.graph
        copy.loads, copy.statements = list(self.loads), list(self.statements)
        copy._dtypes, copy._shared = dict(self._dtypes), dict(self._shared)
        return copy

    @property
    def name(self) -> str:
        """The tensor that the contraction makes."""
        return self.op.name

    @property
    def type(self) -> TensorType:
        """The type of that tensor."""
        return self.op.type

    @property
    def value(self) -> Operand:
        """What is aggregated."""
        return self.op.result

    def here(self, tensor: str) -> Operand:
        """The element of a tensor like the result in the cell that this point contributes to."""
        return self.load(tensor, self.op.output)

    def reduced(self, value: Operand, type_: TensorType, agg: Aggregation) -> str:
        """`value` aggregated into the cells of the result."""
        return self.contraction(self.op, value, self.op.output, type_, agg)

    def dtype(self, operand: Operand) -> DType:
        return operand.dtype if isinstance(operand, Literal) else self._dtypes[operand]

    def load(self, tensor: str, formulas: tuple[Poly, ...]) -> str:
        """The element of `tensor` at `formulas`, whose ranges the domain must hold already."""
        for known in self.loads:
            if known.tensor == tensor and known.formulas == formulas:
                return known.dst
        name = fresh(f"$load{len(self.loads)}", self._dtypes)
        self.loads.append(TensorLoad(name, tensor, formulas))
        self._dtypes[name] = self.graph.dtype(tensor)
        return name

    def reads_only(self, value: str, tensor: str, formulas: tuple[Poly, ...]) -> bool:
        """Whether `value` is this element of `tensor`, cast to another dtype at most."""
        statements = {s.dst: s for s in self.statements}
        while value in statements:
            source = statements[value].args[0]
            if statements[value].fn != "cast" or not isinstance(source, str):
                return False
            value = source
        return any(load.dst == value and (load.tensor, load.formulas) == (tensor, formulas) for load in self.loads)

    def _append(self, fn: str, args: tuple[Operand, ...], dtype: DType) -> Operand:
        key = (*_call_key(fn, args), dtype)
        if key not in self._shared:
            name = fresh(f"$op{len(self.statements)}", self._dtypes)
            self.statements.append(ScalarStatement(name, fn, args, dtype))
            self._dtypes[name] = dtype
            self._shared[key] = name
        return self._shared[key]

    def contraction(
        self, like: Contraction, result: Operand, output: tuple[Poly, ...], type_: TensorType, agg: Aggregation
    ) -> str:
        """Aggregate `result` over the domain of `like`: the name of the tensor that holds it."""
        loads, statements, result = _pruned(self.loads, self.statements, result)
        acc = type_.dtype.accumulator if agg in (Aggregation.SUM, Aggregation.PROD) else type_.dtype
        return self.graph.add(
            Contraction(
                self.graph.fresh("G"),
                type_,
                agg,
                like.indexes,
                output,
                like.constraints,
                loads,
                statements,
                result,
                acc,
                None,
                like.no_defract,
            )
        )


class Updates(Emitter):
    """The values that a scatter aggregates, as tensors of the shape of its updates; what `Body` is to a contraction."""

    def __init__(self, op: Scatter, graph: Graph) -> None:
        self.op = op
        self.graph = graph
        self.name, self.type = op.name, op.type
        self.value: Operand = op.updates

    def dtype(self, operand: Operand) -> DType:
        return self.graph.dtype(operand)

    def _append(self, fn: str, args: tuple[Operand, ...], dtype: DType) -> Operand:
        return self.graph.emit(fn, args, dtype)

    def here(self, tensor: str) -> Operand:
        """For each of the values, the element of a tensor like the result in the cell that the value falls on."""
        type_ = TensorType(self.graph.dtype(tensor), self.graph.shape(self.op.updates))
        return self.graph.add(Gather(self.graph.fresh("G"), type_, tensor, self.op.subscripts))

    def reduced(self, value: Operand, type_: TensorType, agg: Aggregation) -> str:
        """Such values aggregated into the cells of the result."""
        source = self.graph.stretched(self._named(value), self.graph.shape(self.op.updates))
        return self.graph.add(Scatter(self.graph.fresh("G"), type_, source, self.op.subscripts, agg))

    def _named(self, value: Operand) -> str:
        return value if isinstance(value, str) else str(self.graph.emit("ident", (value,), value.dtype))


def _pruned(
    loads: Sequence[TensorLoad], statements: Sequence[ScalarStatement], result: Operand
) -> tuple[tuple[TensorLoad, ...], tuple[ScalarStatement, ...], Operand]:
    """What `result` needs, with locals numbered in order of use, so that equal bodies have equal text."""
    needed: set[Operand] = {result}
    kept: list[ScalarStatement] = []
    for statement in reversed(statements):
        if statement.dst in needed:
            needed.update(statement.args)
            kept.append(statement)
    kept.reverse()
    used = [a for s in kept for a in s.args if isinstance(a, str)] + [result]
    bydst = {load.dst: load for load in loads}
    order = list(dict.fromkeys(name for name in used if isinstance(name, str) and name in bydst))
    names: dict[Operand, str] = {dst: f"${k}" for k, dst in enumerate(order)}
    names |= {s.dst: f"$r{k}" for k, s in enumerate(kept)}

    def new(operand: Operand) -> Operand:
        return names[operand] if isinstance(operand, str) else operand

    return (
        tuple(replace(bydst[dst], dst=names[dst]) for dst in order),
        tuple(replace(s, dst=names[s.dst], args=tuple(new(a) for a in s.args)) for s in kept),
        new(result),
    )
