"""Sorting by any comparator: keys are read from it; what has no keys is ranked by comparing all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tile_ir.dtype import DType
from tile_runtime.ops.gather import taken_along
from tile_runtime.ops.moving import permuted, reshaped
from tile_runtime.ops.text import expression, function
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_jax.lowering.complexes import part_by_part
from tile_jax.lowering.counting import returned
from tile_jax.lowering.elements import converted, counted, elementwise, full
from tile_jax.lowering.mlir import Block, Node, Operation, ir
from tile_jax.lowering.op import Op
from tile_jax.lowering.ops.elementwise import ordered
from tile_jax.lowering.ops.reduce import aggregated
from tile_jax.lowering.registry import operation

RANKED = 4096
"""Elements along an axis up to which all pairs are compared."""


@dataclass(frozen=True, slots=True)
class Key:
    """What elements are ordered by: a value of the comparator that only one of both elements enters."""

    value: Node
    descending: bool
    total: bool
    """Whether floats are compared in IEEE 754's total order."""


@operation("stablehlo.sort")
def sort(op: Op) -> tuple[Value, ...]:
    """All operands in the order that the comparator gives; equal ones stay in theirs."""
    axis, block = op.number("dimension", -1) % max(len(op.shape()), 1), op.region()
    values = list(op.values)
    if not op.shape() or op.shape()[axis] <= 1 or 0 in op.shape():
        return tuple(values)
    keys = _keys(returned(block)[0], block)
    if keys is not None and len(values) == len(keys) == 1 and _plain(keys[0], values[0]):
        return (apply(expression("X", f"sort(X, {axis}, {int(keys[0].descending)})"), values[0]),)
    order = _by_keys(op, block, keys, axis) if keys else _by_ranks(op, block, axis)
    in_order = partial(taken_along, indices=order, axis=axis)
    return tuple(part_by_part(op, [k], in_order) for k in range(len(values)))


def _plain(key: Key, value: Value) -> bool:
    """Whether elements are their own keys, and equal ones cannot be told apart."""
    return isinstance(key.value, ir.BlockArgument) and dtype_of(value).is_integer


# --- reading comparators ----------------------------------------------------------------------------------


def _keys(value: Node, block: Block) -> list[Key] | None:
    """Keys, the most significant first: ``a < a'`` or ``a < a' | (a == a' & …)``, or that as a selection."""
    if not isinstance(value, ir.OpResult):
        return None
    operation = value.owner
    given: list[Node] = list(operation.operands)
    match operation.name:
        case "stablehlo.compare":
            key = _key(operation, block, {"LT", "GT"})
            return None if key is None else [key]
        case "stablehlo.or":
            return _several(given[0], given[1], block) or _several(given[1], given[0], block)
        case "stablehlo.select":
            return _selected(given, block)
        case _:
            return None


def _several(first: Node, rest: Node, block: Block) -> list[Key] | None:
    """Keys of ``first | (equal & more)``."""
    if not isinstance(rest, ir.OpResult) or rest.owner.name != "stablehlo.and":
        return None
    one, other = list(rest.owner.operands)
    return _joined(first, one, other, block) or _joined(first, other, one, block)


def _selected(given: list[Node], block: Block) -> list[Key] | None:
    """Keys of ``equal ? more : first``, or of ``different ? first : more``."""
    test, yes, no = given
    return _joined(no, test, yes, block) or _joined(yes, test, no, block, "NE")


def _joined(first: Node, equal: Node, more: Node, block: Block, word: str = "EQ") -> list[Key] | None:
    own, others = _keys(first, block), _keys(more, block)
    if own is None or others is None or len(own) != 1 or not isinstance(equal, ir.OpResult):
        return None
    same = _key(equal.owner, block, {word}) if equal.owner.name == "stablehlo.compare" else None
    return None if same is None or _form(same.value, block) != _form(own[0].value, block) else own + others


def _key(operation: Operation, block: Block, words: set[str]) -> Key | None:
    """The key of a comparison of the same expression of both elements."""
    one, other = list(operation.operands)
    word, total = (_enumeration(operation, name) for name in ("comparison_direction", "compare_type"))
    (left, first), (right, second) = _form(one, block), _form(other, block)
    if word not in words or left != right or {*first} != {0} ^ ({*second} ^ {1}) or {*first} | {*second} != {0, 1}:
        return None
    if len({*first}) != 1 or len({*second}) != 1:
        return None
    return Key(one, (word == "GT") != ({*first} == {1}), total == "TOTALORDER")


def _enumeration(operation: Operation, name: str) -> str:
    attributes: Any = operation.attributes
    return str(attributes[name]).rstrip(">").split()[-1] if name in attributes else ""


def _form(value: Node, block: Block) -> tuple[Any, frozenset[int]]:
    """An expression with its arguments' operands in place of the arguments, and which of both elements enter it."""
    if isinstance(value, ir.BlockArgument) and value.owner == block:
        return ("argument", value.arg_number // 2), frozenset({value.arg_number % 2})
    if not isinstance(value, ir.OpResult) or value.owner.operation.block != block:
        return ("outside", hash(value)), frozenset()
    parts = [_form(v, block) for v in value.owner.operands]
    sides = frozenset(side for _, own in parts for side in own)
    return (
        value.owner.operation.name,
        str(value.owner.operation.attributes),
        value.result_number,
        *(form for form, _ in parts),
    ), sides


# --- orders -----------------------------------------------------------------------------------------------


def _by_keys(op: Op, block: Block, keys: Sequence[Key], axis: int) -> Value:
    """The order of elements: by the last key first, then by those before, which keep it among equal ones."""
    both = [v for v in op.values for _ in range(2)]
    scope = op.lift_all(block, both)
    order: Value = None
    for key in reversed(keys):
        value = _sortable(scope.find(key.value), key)
        moved = value if order is None else taken_along(value, order, axis)
        own = apply(expression("X", f"argsort(X, {axis}, {int(key.descending)})"), moved)
        order = own if order is None else taken_along(order, own, axis)
    return order


def _sortable(value: Value, key: Key) -> Value:
    dtype = dtype_of(value)
    if dtype is DType.BOOL:
        return converted(value, DType.INT32)
    return ordered(value) if key.total and dtype.is_float else value


def _by_ranks(op: Op, block: Block, axis: int) -> Value:
    """The order of elements by how many stand before each: those that compare less, and equal ones in front of it."""
    size, rank = op.shape()[axis], len(op.shape())
    if op.complex:
        raise op.unsupported("its comparator of complex numbers has no keys", "compare real and imaginary parts with <")
    if size > RANKED:
        raise op.unsupported(f"its comparator has no keys, and {size} elements are more than the {RANKED} whose pairs are compared",
                             "compare keys with <, and ties by further keys")  # fmt: skip
    last = [k for k in range(rank) if k != axis] + [axis]
    rows = [permuted(v, last) for v in op.values]
    shape = tuple(rows[0].shape)
    columns, across = (*shape[:-1], size, 1), (*shape[:-1], 1, size)
    both = [reshaped(v, s) for v in rows for s in (columns, across)]
    (less,) = op.lift(block, both)
    pairs = (*shape[:-1], size, size)
    turned = permuted(less, [*range(rank - 1), rank, rank - 1])
    earlier = elementwise("({0} < {1})", counted(pairs, rank - 1), counted(pairs, rank))
    before = elementwise("({0} | ((~{1}) & {2}))", less, turned, earlier, shape=pairs)
    places = aggregated(converted(before, DType.INT32), (rank - 1,), "+")
    order = apply(expression("X", f"argsort(X, {rank - 1})"), places)
    return permuted(order, [*range(axis), rank - 1, *range(axis, rank - 1)])


@operation("chlo.top_k")
def top_k(op: Op) -> tuple[Value, ...]:
    """The largest along the last axis, largest first, and their places; of equal ones the first."""
    axis, count = len(op.shape()) - 1, op.number("k")
    made = op.results
    if not count or 0 in op.shape():
        return tuple(full(0, t.dtype, t.shape) for t in made)
    text = function(("X",), ("V", "I"), f"T = top_k(X, {count}, {axis});", "V = element(T, 0);", "I = element(T, 1);")
    found, places = apply(text, op.values[0])
    return found, converted(places, made[1].dtype)
