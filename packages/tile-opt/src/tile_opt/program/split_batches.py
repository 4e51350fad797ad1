"""Products of stacks of matrices whose dimensions were put together for them, and are taken apart again behind them.

``[batch, heads, …]`` becomes ``[batch * heads, …]`` where a front end has products with one batch index only, and
``[batch, places, …]`` becomes ``[batch * places, …]`` where layers take rows. With an index
for each dimension what stands before and behind the product is of one shape with it, and no reshape stands between what
others look for in a row: products, softmax, products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.liveness import reads
from tile_ir.program.nodes import Constraint, Contraction, Op, Poly, Program, Reshape, TensorLoad, TensorType
from tile_ir.stripe.nodes import row_major_strides

from tile_opt.program.base import Rewrite, with_each

Shape = tuple[int, ...]


@frozen
class SplitBatches(Rewrite):
    """Give products an index for each dimension into which a reshape, the only reader of their result, splits batch or rows."""

    def apply(self, program: Program) -> Program:
        if not any(isinstance(op, Reshape) for op in program.ops):
            return program
        return with_each(program, _Work(program).op)


@frozen
class _Batch:
    """The index of a product that says which of a stack, and what takes its place."""

    name: str
    digits: tuple[str, ...]
    sizes: Shape

    @property
    def forms(self) -> tuple[Poly, ...]:
        return tuple(Poly.of({digit: 1}) for digit in self.digits)

    def split(self, form: Poly) -> Poly:
        """The form with the digits' value in the place of the index."""
        factor = form.coefficient(self.name)
        value = Poly.of(dict(zip(self.digits, row_major_strides(self.sizes), strict=True)))
        rest = Poly.of({n: c for n, c in form.terms if n != self.name}, form.const)
        return rest + value.scaled(factor) if factor else form

    def apart(self, forms: tuple[Poly, ...]) -> tuple[Poly, ...] | None:
        """Subscripts with the digits in the place of the one that is the index; None where none is."""
        place = next((d for d, form in enumerate(forms) if form.index == self.name), None)
        if place is None:
            return None
        before, after = map(self.split, forms[:place]), map(self.split, forms[place + 1 :])
        return (*before, *self.forms, *after)


class _Work:
    """The program's reshapes, and who reads each value."""

    def __init__(self, program: Program) -> None:
        self.types: Mapping[str, TensorType] = program.types()
        self.readers = reads(program)
        self.reshapes = {op.name: op for op in program.ops if isinstance(op, Reshape) and self._is_plain(op)}
        self.behind = {op.arg: op for op in self.reshapes.values()}
        self.gone: set[str] = set()
        """Reshapes that are part of the products before them."""

    def _is_plain(self, op: Reshape) -> bool:
        """It keeps the dtype: others give bytes another meaning."""
        return op.type.dtype is self.types[op.arg].dtype

    def op(self, op: Op) -> Iterator[Op]:
        """What takes the place of an operation."""
        after = self.behind.get(op.name) if isinstance(op, Contraction) and self.readers[op.name] == 1 else None
        found = _batch(op, after.type.shape) if isinstance(op, Contraction) and after is not None else None
        if isinstance(op, Contraction) and after is not None and found is not None and self._suits(op, found):
            self.gone.add(after.name)
            yield self._split(op, found, after)
        elif getattr(op, "name", "") not in self.gone:
            yield op

    def _suits(self, op: Contraction, batch: _Batch) -> bool:
        """Every operand has the batch; or those that have it were put together by a reshape: the digits become one loop again."""
        having = [load for load in op.loads if any(batch.name in form.names for form in load.formulas)]
        return len(having) == len(op.loads) or all(self._parts(load, batch) is not None for load in having)

    def _split(self, op: Contraction, batch: _Batch, after: Reshape) -> Contraction:
        """The product under the name, and in the shape, of the reshape behind it."""
        output = batch.apart(op.output)
        assert output is not None, "the batch is a subscript of the result"
        rest = (replace(c, formula=batch.split(c.formula)) for c in op.constraints if c.formula.index != batch.name)
        own = (Constraint(f, size, op.origin) for f, size in zip(batch.forms, batch.sizes, strict=True))
        return replace(
            op,
            name=after.name,
            type=after.type,
            indexes=(*batch.digits, *(n for n in op.indexes if n != batch.name)),
            output=output,
            constraints=(*own, *rest),
            loads=tuple(self._load(load, batch) for load in op.loads),
        )

    def _load(self, load: TensorLoad, batch: _Batch) -> TensorLoad:
        """Of what a reshape put together, the parts themselves."""
        parts = self._parts(load, batch)
        return parts if parts is not None else replace(load, formulas=tuple(map(batch.split, load.formulas)))

    def _parts(self, load: TensorLoad, batch: _Batch) -> TensorLoad | None:
        """The load from what a reshape put together to the batch; None where none did."""
        before = self.reshapes.get(load.tensor) if isinstance(load.tensor, str) else None
        apart = batch.apart(load.formulas) if before is not None else None
        if before is None or apart is None:
            return None
        place = next(d for d, form in enumerate(load.formulas) if form.index == batch.name)
        whole = _replaced(before.type.shape, place, batch.sizes)
        return replace(load, tensor=before.arg, formulas=apart) if self.types[before.arg].shape == whole else None


def _replaced(shape: Shape, place: int, sizes: Shape) -> Shape:
    return (*shape[:place], *sizes, *shape[place + 1 :])


def _batch(op: Contraction, shape: Shape) -> _Batch | None:
    """The batch of a product whose result is reshaped to `shape`, which splits that and nothing else."""
    if op.default is not None or len(op.loads) < 2:
        return None
    own = op.type.shape
    for place, form in enumerate(op.output):
        sizes = shape[place : place + 1 + len(shape) - len(own)]
        if form.index is None or len(sizes) < 2 or shape != _replaced(own, place, sizes):
            continue
        rows = place < len(own) - 1
        if _is_whole(op, form.index, own[place]) and all(
            _is_alone(x.formulas, form.index, rows=rows) for x in op.loads
        ):
            taken = set(op.indexes)
            digits = tuple(claim(f"{form.index}_{k}", taken) for k in range(len(sizes)))
            return _Batch(form.index, digits, sizes)
    return None


def _is_whole(op: Contraction, name: str, size: int) -> bool:
    """The index has all values below `size`, and no bound of its own beside that."""
    alone = [c.size for c in op.constraints if c.formula.index == name]
    return bool(alone) and min(alone) == size


def _is_alone(forms: tuple[Poly, ...], name: str, *, rows: bool) -> bool:
    """The index is a subscript of its own, and in no other; with `rows` it may be missing.

    Rows of a result, all its indexes but the last, lie as they did when they are split; columns would end at each digit.
    """
    found = [form.index for form in forms if name in form.names]
    return found == [name] or (rows and not found)
