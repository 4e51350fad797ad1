"""Smaller versions of a program: each drops or simplifies one thing, and may well mean something else, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import tile_lang
from tile_ir.diagnostics import Source, TileError
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import TensorType
from tile_lang import ast

from farm.sample import Sample

Types = dict[str, TensorType]
Candidate = tuple[ast.Function, Mapping[str, TensorType]]
Step = Callable[[ast.Function, Mapping[str, TensorType]], Iterator[Candidate]]


def families() -> Sequence[Callable[[Sample], Iterator[Sample]]]:
    """Kinds of smaller programs, the boldest first."""
    return (_settings, *(partial(_stepped, step) for step in STEPS))


def _stepped(step: Step, sample: Sample) -> Iterator[Sample]:
    try:
        function = tile_lang.parse(Source(sample.source))
    except TileError:
        return
    for changed, types in step(function, sample.types):
        text = tile_lang.print_function(changed)
        if text != sample.source or dict(types) != dict(sample.types):
            yield _with(sample, changed, text, types)


def _with(sample: Sample, function: ast.Function, text: str, types: Mapping[str, TensorType]) -> Sample:
    """The sample of another text; types of what is no input any more go, and so do derivatives with respect to it."""
    names = [i.name.id for i in function.inputs]
    kept = {n: types[n] for n in names if n in types}
    wrt = tuple(n for n in sample.wrt if n in kept and kept[n].dtype.is_float)
    return Sample(text, kept, sample.data, sample.fractions, sample.special, sample.order, wrt, sample.kind)


def _settings(sample: Sample) -> Iterator[Sample]:
    def varied(**changes: Any) -> Sample:
        own = {f.name: getattr(sample, f.name) for f in fields(sample)}
        return Sample(**{**own, **changes})

    if sample.order:
        yield varied(order=sample.order - 1, wrt=sample.wrt if sample.order > 1 else ())
    if len(sample.wrt) > 1:
        yield from (varied(wrt=(name,)) for name in sample.wrt)
    if sample.special:
        yield varied(special=False)
    if sample.fractions:
        yield varied(fractions=False)


# --- statements and outputs ------------------------------------------------------------------------------


def _without_statement(function: ast.Function, types: Mapping[str, TensorType]) -> Iterator[Candidate]:
    """A statement goes; what it made is no output, and an input where other statements need it."""
    known = _value_types(function, types)
    for statement in reversed(function.statements):
        rest = tuple(s for s in function.statements if s is not statement)
        name = _target(statement)
        outputs = tuple(o for o in function.outputs if o.id != name) or tuple(ast.Name(_target(s)) for s in rest[-1:])
        if not rest:
            continue
        cut = replace(function, statements=rest, outputs=outputs)
        if name in _names(rest):
            if name in known:
                yield replace(cut, inputs=(*function.inputs, ast.Input(ast.Name(name)))), {**types, name: known[name]}
        else:
            yield cut, types


def _value_types(function: ast.Function, types: Mapping[str, TensorType]) -> Mapping[str, TensorType]:
    try:
        return tile_lang.bind(function, types).types()
    except TileError:
        return {}


def _target(statement: ast.Statement) -> str:
    return statement.target.name.id if isinstance(statement, ast.Contraction) else statement.target.id


def _names(node: object) -> set[str]:
    return {n.id for n in _walk(node) if isinstance(n, ast.Name)}


def _without_output(function: ast.Function, types: Mapping[str, TensorType]) -> Iterator[Candidate]:
    if len(function.outputs) > 1:
        for output in function.outputs:
            yield replace(function, outputs=(output,)), types
        for output in function.outputs:
            yield replace(function, outputs=tuple(o for o in function.outputs if o is not output)), types


def _without_input(function: ast.Function, types: Mapping[str, TensorType]) -> Iterator[Candidate]:
    used = _names((function.statements, function.outputs))
    for given in function.inputs:
        if given.name.id not in used and not {d.id for d in given.dims or ()} & used:
            yield replace(function, inputs=tuple(i for i in function.inputs if i is not given)), types


# --- what stands in statements -------------------------------------------------------------------------


def _simpler_nodes(function: ast.Function, types: Mapping[str, TensorType]) -> Iterator[Candidate]:
    """One node of the tree in place of a larger one, or less of it."""
    for node in _walk(function.statements):
        for other in _simpler(node):
            yield replace(function, statements=_exchanged(function.statements, node, other)), types


def _simpler(node: object) -> Iterator[object]:
    match node:
        case ast.Binary(_, left, right):
            yield from (left, right)
        case ast.Unary(_, operand):
            yield operand
        case ast.Conditional(_, then, otherwise):
            yield from (then, otherwise)
        case ast.Call(_, args):
            yield from args
        case ast.Contraction():
            yield from _simpler_contraction(node)
        case ast.IntLiteral() if node.value > 1:
            yield from (ast.IntLiteral(str(n)) for n in (0, 1, node.value // 2, node.value - 1))
        case ast.FloatLiteral():
            yield ast.IntLiteral("1")
        case _:
            return


def _simpler_contraction(node: ast.Contraction) -> Iterator[ast.Contraction]:
    if node.default is not None:
        yield replace(node, default=None)
    if node.no_defract or node.attributes:
        yield replace(node, no_defract=False, attributes=())
    for constraint in node.constraints:
        yield replace(node, constraints=tuple(c for c in node.constraints if c is not constraint))
    if len(node.body.accesses) > 1:
        yield from (replace(node, body=ast.Body((ref,), None)) for ref in node.body.accesses)
    if node.body.then is not None:
        yield replace(node, body=ast.Body(node.body.refs, "*"))
    if len(node.body.refs) > 2:
        yield replace(node, body=ast.Body(node.body.refs[1:], node.body.comb))
    if node.agg is not Aggregation.SUM:
        yield replace(node, agg=Aggregation.SUM)
    sizes = node.target.sizes or ()
    for at in range(len(sizes)):
        indexes = (*node.target.indexes[:at], *node.target.indexes[at + 1 :])
        yield replace(node, target=replace(node.target, indexes=indexes, sizes=(*sizes[:at], *sizes[at + 1 :])))
    for name in sorted({n.id for n in _walk(node) if isinstance(n, ast.IndexName)}):
        fixed = [n for n in _walk(node) if isinstance(n, ast.IndexName) and n.id == name]
        changed: Any = node
        for old in fixed:
            changed = _exchanged(changed, old, ast.IntLiteral("0"))
        yield changed


# --- sizes and dtypes ----------------------------------------------------------------------------------


def _smaller_sizes(function: ast.Function, types: Mapping[str, TensorType]) -> Iterator[Candidate]:
    """All dimensions of one size at once, in the text too; then one by one."""
    sizes = sorted({s for t in types.values() for s in t.shape}, reverse=True)
    for size in sizes:
        for less in sorted({1, 2, 3, size // 2, size - 1}):
            if 0 <= less < size:
                changed = {
                    n: TensorType(t.dtype, tuple(less if s == size else s for s in t.shape)) for n, t in types.items()
                }
                yield _literals(function, size, less), changed
                yield function, changed
    for name, type_ in types.items():
        for at, size in enumerate(type_.shape):
            for less in sorted({1, 2, size // 2, size - 1}):
                if 0 < less < size:
                    shape = (*type_.shape[:at], less, *type_.shape[at + 1 :])
                    yield function, {**types, name: TensorType(type_.dtype, shape)}


def _literals(function: ast.Function, old: int, new: int) -> ast.Function:
    statements: Any = function.statements
    for node in [n for n in _walk(statements) if isinstance(n, ast.IntLiteral) and n.value == old]:
        statements = _exchanged(statements, node, ast.IntLiteral(str(new)))
    return replace(function, statements=statements)


def _lower_rank(function: ast.Function, types: Mapping[str, TensorType]) -> Iterator[Candidate]:
    """An input without one of its dimensions, and without the subscripts of it."""
    for given in function.inputs:
        name, rank = given.name.id, len(types[given.name.id].shape) if given.name.id in types else 0
        for at in range(rank):
            dims = given.dims and (*given.dims[:at], *given.dims[at + 1 :])
            inputs = tuple(replace(i, dims=dims) if i is given else i for i in function.inputs)
            statements: Any = function.statements
            for ref in [r for r in _walk(statements) if isinstance(r, ast.Ref) and r.name.id == name]:
                shorter = replace(ref, indexes=(*ref.indexes[:at], *ref.indexes[at + 1 :]))
                statements = _exchanged(statements, ref, shorter)
            shape = types[name].shape
            lower = TensorType(types[name].dtype, (*shape[:at], *shape[at + 1 :]))
            yield replace(function, inputs=inputs, statements=statements), {**types, name: lower}


def _plain_dtypes(function: ast.Function, types: Mapping[str, TensorType]) -> Iterator[Candidate]:
    """float32 for all of them, or for floats beside int32 for the others: never back again."""
    yield function, {n: TensorType(DType.FLOAT32, t.shape) for n, t in types.items()}
    usual = {True: DType.FLOAT32, False: DType.INT32}
    yield function, {n: TensorType(usual[t.dtype.is_float], t.shape) for n, t in types.items()}


STEPS: Sequence[Step] = (
    _without_output, _without_statement, _without_input, _plain_dtypes, _simpler_nodes, _lower_rank, _smaller_sizes,
)  # fmt: skip


# --- trees ---------------------------------------------------------------------------------------------


def _walk(node: object) -> Iterator[object]:
    """Every node, outermost first."""
    stack: list[object] = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            stack.extend(reversed(item))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(item, ast.Node) and is_dataclass(item):
            yield item
            stack.extend(getattr(item, f.name) for f in reversed(fields(item)) if f.name != "span")


def _exchanged(node: Any, old: object, new: object) -> Any:
    """The tree with `new` in place of the one node that is `old`."""
    if node is old:
        return new
    if isinstance(node, tuple):
        items = [_exchanged(item, old, new) for item in node]  # pyright: ignore[reportUnknownVariableType]
        return tuple(items) if any(a is not b for a, b in zip(items, node, strict=True)) else node  # pyright: ignore
    if not isinstance(node, ast.Node) or not is_dataclass(node):
        return node
    parts = {f.name: getattr(node, f.name) for f in fields(node) if f.name != "span"}
    changed = {n: made for n, part in parts.items() if (made := _exchanged(part, old, new)) is not part}
    return replace(node, **changed) if changed else node
