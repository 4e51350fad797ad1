"""The structural verifier of Stripe: named checks, one function each, run on every block.

`verify(program)` raises the first violation as a StripeError that names the check, the path of block
names from the entry to the offender, and the offender's first line. What a check cannot see without
integer sets (bounds, races) is tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod

from tile_ir.diagnostics import TileInternalError
from tile_ir.dots import DOTS, WORD
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import OPS, Signature
from tile_ir.stripe.affine import Affine, DivMod, Quasi
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    Direction,
    Index,
    Init,
    Load,
    LoadIndex,
    Op,
    Program,
    Reduce,
    Refinement,
    Statement,
    Store,
    Sync,
    Transfer,
    Wait,
)
from tile_ir.stripe.printer import block_head, print_form, print_refinement, print_statement
from tile_ir.stripe.walk import buffers_read, buffers_written, defined, forms_in, scalars_used

MAX_DEPTH = 100
"""Deepest nesting of blocks."""


class StripeError(TileInternalError):
    """A Stripe program that breaks a rule: which check, in which block, and that block's first line."""

    def __init__(self, message: str, path: tuple[str, ...] = (), head: str = "", check: str = "") -> None:
        self.message, self.path, self.head, self.check = message, path, head, check
        where = f"{' / '.join(path) or 'program'}: " if path or head else ""
        super().__init__(f"{where}{message}" + (f" [{check}]" if check else "") + (f"\n  {head}" if head else ""))

    def __reduce__(self) -> tuple[type[StripeError], tuple[object, ...]]:
        return (type(self), (self.message, self.path, self.head, self.check))


@frozen
class Site:
    """A block with what its checks may look at: the enclosing block (None at the top) and the path to it."""

    block: Block
    parent: Block | None
    path: tuple[str, ...]

    @property
    def indexes(self) -> frozenset[str]:
        return frozenset(index.name for index in self.block.indexes)

    @property
    def parent_indexes(self) -> frozenset[str]:
        return frozenset(index.name for index in self.parent.indexes) if self.parent else frozenset()


Check = Callable[[Site], Iterable[str]]
"""Yields one sentence per violation."""


def verify(program: Program) -> None:
    """Raise StripeError unless every structural rule holds."""
    for check in PROGRAM_CHECKS:
        for message in check(program):
            raise StripeError(message, (), block_head(program.entry), check.__name__)
    verify_block(program.entry)


def verify_block(block: Block, parent: Block | None = None) -> None:
    """Verify a block and all blocks within; without `parent`, its sources, guard and values go unchecked."""
    stack = [Site(block, parent, (block.name,))]
    while stack:
        site = stack.pop()
        for check in CHECKS:
            for message in check(site):
                raise StripeError(message, site.path, block_head(site.block), check.__name__)
        for number, statement in enumerate(site.block.body):
            if isinstance(statement, Block):
                stack.append(Site(statement, site.block, (*site.path, statement.name or f"#{number}")))


# --- blocks and indexes --------------------------------------------------------------------------


def nesting(site: Site) -> Iterator[str]:
    """Blocks nest at most MAX_DEPTH deep."""
    if len(site.path) > MAX_DEPTH:
        yield f"blocks nest deeper than {MAX_DEPTH}"


def unique_names(site: Site) -> Iterator[str]:
    """Indexes and refinements of a block have distinct, printable names."""
    for kind, names in (
        ("index", [i.name for i in site.block.indexes]),
        ("refinement", [r.into for r in site.block.refs]),
    ):
        seen: set[str] = set()
        for name in names:
            if name in seen:
                yield f"two {kind} names are {name!r}"
            if not name or "`" in name or "\n" in name or name.startswith("$"):
                yield f"{name!r} cannot name a {kind}"
            seen.add(name)


def index_fields(site: Site) -> Iterator[str]:
    """Ranges are not negative; a passed-down index has range 1; lanes divide a vector index; axes are 0 to 2."""
    for index in site.block.indexes:
        if index.range < 0:
            yield f"index {index.name} has range {index.range}"
        if index.value is not None and index.range != 1:
            yield f"index {index.name} has a value and range {index.range}, not 1"
        yield from _binding(index)


def _binding(index: Index) -> Iterator[str]:
    if index.lanes < 1 or (index.bind is not Bind.VECTOR and index.lanes != 1):
        yield f"index {index.name} has {index.lanes} lanes and binding {index.bind.value}"
    elif index.bind is Bind.VECTOR and index.range % index.lanes:
        yield f"vector index {index.name} has range {index.range}, no multiple of its {index.lanes} lanes"
    if not 0 <= index.axis <= 2:
        yield f"index {index.name} has axis {index.axis}"


def known_index_names(site: Site) -> Iterator[str]:
    """Forms mention only indexes in scope: the block's own; the parent's in guards and passed-down values."""
    own, parent = site.indexes, site.parent_indexes
    forms: list[tuple[str, Quasi, frozenset[str]]] = [("constraint", c, own) for c in site.block.constraints]
    if site.parent is not None:
        forms += [("guard", g, parent) for g in site.block.guard]
        forms += [(f"value of index {i.name}", i.value, parent) for i in site.block.indexes if i.value is not None]
        forms += [("location", f, own | parent) for f in (site.block.loc.at if site.block.loc else ())]
    for ref in site.block.refs:
        forms += [(f"access of {ref.into}", form, own) for form in ref.access]
        forms += [(f"location of {ref.into}", form, own) for form in ref.loc.at]
    for number, statement in _flat(site.block):
        forms += [(f"statement {number}", form, own) for form in forms_in(statement)]
    for what, form, scope in forms:
        unknown = sorted(set(form.names) - scope)
        if unknown:
            yield f"the {what}, {print_form(form)}, mentions unknown index {unknown[0]}"
        if isinstance(form, DivMod) and form.den <= 0:
            yield f"the {what}, {print_form(form)}, divides by {form.den}"


def _flat(block: Block) -> Iterator[tuple[int, Statement]]:
    """The numbered statements of a block less its inner blocks, each of which is a site of its own."""
    return ((n, s) for n, s in enumerate(block.body) if not isinstance(s, Block))


# --- refinements ---------------------------------------------------------------------------------


def allocations(site: Site) -> Iterator[str]:
    """Exactly the allocations have no source; they start at zero. Several versions: allocations, and views of them all."""
    for ref in site.block.refs:
        alloc = ref.dir is Direction.ALLOC
        if alloc != (not ref.source):
            yield f"{'allocation' if alloc else 'refinement'} {ref.into} has source {ref.source!r}: {print_refinement(ref)}"
        if alloc and any(form != Affine() for form in ref.access):
            yield f"allocation {ref.into} does not start at zero: {print_refinement(ref)}"
        source = _source(site, ref)
        if ref.versions < 1 or (ref.versions > 1 and source is not None and ref.versions != source.versions):
            yield f"refinement {ref.into} has {ref.versions} versions; its source has another number of them"


def ranks(site: Site) -> Iterator[str]:
    """Sizes, strides and accesses of a refinement, and its source's, have one rank; sizes are not negative."""
    for ref in site.block.refs:
        rank = len(ref.type.sizes)
        source = _source(site, ref)
        extra = 1 if source is not None and source.versions > 1 and len(ref.access) == rank + 1 else 0
        if len(ref.type.strides) != rank or len(ref.access) != rank + extra:
            yield f"refinement {ref.into} has {rank} sizes, {len(ref.type.strides)} strides, {len(ref.access)} accesses"
        if source is not None and len(source.type.sizes) != rank and not is_reshape(ref, source):
            yield f"refinement {ref.into} has rank {rank}, its source {source.into} rank {len(source.type.sizes)}"
        if any(size < 0 for size in ref.type.sizes) or ref.type.layout.align < 1:
            yield f"refinement {ref.into} has a negative size or no alignment: {print_refinement(ref)}"
        if ref.bank_dim is not None and not 0 <= ref.bank_dim < rank:
            yield f"refinement {ref.into} is banked over dimension {ref.bank_dim} of {rank}"


def is_reshape(ref: Refinement, source: Refinement) -> bool:
    """True for a view of all of its source under another shape (see `Refinement`)."""
    return ref.type.reshapes(source.type) and all(form == Affine() for form in ref.access)


def sources(site: Site) -> Iterator[str]:
    """A refinement's source is a refinement of the parent with the same dtype and strides, not written if read-only."""
    for ref in site.block.refs:
        if site.parent is None or not ref.source:
            continue
        source = _source(site, ref)
        if source is None:
            yield f"refinement {ref.into} refers to {ref.source}, which the enclosing block does not have"
            continue
        if ref.type.dtype not in (source.type.dtype, source.acc) and not (
            ref.dir is Direction.IN and is_reshape(ref, source)
        ):
            yield f"refinement {ref.into} is {ref.type.dtype}, its source {source.into} {source.type.dtype}"
        if ref.dir is not Direction.IN and (source.dir is Direction.IN or source.const):
            yield f"refinement {ref.into} writes {source.into}, which is read-only"
        if is_reshape(ref, source):
            continue
        dims = zip(source.type.sizes, source.type.strides, ref.type.strides, strict=False)
        if any(size > 1 and ours != theirs for size, theirs, ours in dims):
            yield f"refinement {ref.into} has strides {ref.type.strides}, its source {source.into} {source.type.strides}"


def aggregations(site: Site) -> Iterator[str]:
    """Initial values and accumulator dtypes belong to aggregating refinements, and those are written."""
    for ref in site.block.refs:
        if ref.agg is None and (ref.init is not Init.KEEP or ref.acc is not None):
            yield f"refinement {ref.into} has init or acc but no aggregation"
        if ref.agg is not None and ref.dir is Direction.IN:
            yield f"refinement {ref.into} aggregates but is read-only"


def _source(site: Site, ref: Refinement) -> Refinement | None:
    if site.parent is None or not ref.source:
        return None
    return next((r for r in site.parent.refs if r.into == ref.source), None)


# --- statements ----------------------------------------------------------------------------------


def dependencies(site: Site) -> Iterator[str]:
    """Statements wait only for earlier siblings."""
    for number, statement in enumerate(site.block.body):
        for dep in statement.deps:
            if not 0 <= dep < number:
                yield f"statement {number} waits for statement {dep}"


def scalars(site: Site) -> Iterator[str]:
    """Scalars are defined once, before their uses, and have the dtypes that operations ask for."""
    types: dict[str, DType] = {}
    refs = {ref.into: ref for ref in site.block.refs}
    for number, statement in enumerate(site.block.body):
        prefix = f"statement {number}"
        missing = [name for name in scalars_used(statement) if name not in types]
        if missing:
            yield f"{prefix} uses {missing[0]} before its definition"
            continue
        yield from (f"{prefix}: {m}" for m in _typing(statement, types, refs))
        dst = defined(statement)
        if dst is None:
            continue
        if dst in types or not dst.startswith("$") or "`" in dst:
            yield f"{prefix} defines {dst!r}, which is defined already or is no scalar's name"
        types[dst] = _result(statement, types, refs)


def _result(statement: Statement, types: dict[str, DType], refs: dict[str, Refinement]) -> DType:
    match statement:
        case Load(_, src):
            return refs[src].type.dtype if src in refs else DType.FLOAT32
        case Reduce(_, src):
            return types[src]
        case Const(_, _, dtype) | LoadIndex(_, _, dtype) | Op(_, _, _, dtype):
            return dtype
        case _:
            raise TypeError(statement)


def _typing(statement: Statement, types: dict[str, DType], refs: dict[str, Refinement]) -> Iterator[str]:
    match statement:
        case Load(_, _, at):
            yield from _subscripts(at, types)
        case Store(dst, src, at):
            yield from _subscripts(at, types)
            ref = refs.get(dst)
            if ref is not None and types[src] not in (ref.type.dtype, ref.acc):
                yield f"stores {types[src]} {src} into {ref.type.dtype} {dst}"
        case Op(_, name, args, dtype):
            yield from _operands(name, tuple(types[a] for a in args), dtype)
        case Const(_, value, dtype):
            if isinstance(value, float) and not dtype.is_float:
                yield f"constant {value} is no {dtype}"
            elif not dtype.is_float and not dtype.min_value <= value <= dtype.max_value:
                yield f"constant {value} is outside {dtype}"
        case LoadIndex(_, _, dtype):
            if dtype not in (DType.INT32, DType.INT64):
                yield f"load_index gives int32 or int64, not {dtype}"
        case _:
            pass


def _subscripts(at: tuple[Quasi | str, ...], types: dict[str, DType]) -> Iterator[str]:
    for item in at:
        if isinstance(item, str) and not types[item].is_integer:
            yield f"subscript {item} is {types[item]}, not an integer"


def _operands(name: str, args: tuple[DType, ...], dtype: DType) -> Iterator[str]:
    op = OPS.get(name)
    if op is None:
        yield f"no operation is called {name!r}"
    elif len(args) != op.arity:
        yield f"{name} takes {op.arity} operands, not {len(args)}"
    elif not _SIGNATURES[op.signature](args, dtype) or (name in DOTS and dtype is not DOTS[name].c):
        yield f"{name}({', '.join(map(str, args))}):{dtype} does not fit {op.signature.value}"


def _all(args: tuple[DType, ...], dtype: DType) -> bool:
    return all(arg is dtype for arg in args)


_SIGNATURES: dict[Signature, Callable[[tuple[DType, ...], DType], bool]] = {
    Signature.SAME: _all,
    Signature.MATH: lambda args, dtype: dtype.is_float and _all(args, dtype),
    Signature.BITS: lambda args, dtype: not dtype.is_float and _all(args, dtype),
    Signature.COMPARE: lambda args, dtype: dtype is DType.BOOL and args[0] is args[1],
    Signature.SELECT: lambda args, dtype: args[0] is DType.BOOL and _all(args[1:], dtype),
    Signature.SHIFT: lambda args, dtype: not dtype.is_float and args[0] is dtype and args[1].is_integer,
    Signature.CAST: lambda args, dtype: True,
    Signature.BITCAST: lambda args, dtype: args[0].bits == dtype.bits and DType.BOOL not in (args[0], dtype),
    Signature.DOT: lambda args, dtype: args[:2] == (WORD, WORD) and args[2] is dtype,
}


def buffers(site: Site) -> Iterator[str]:
    """Statements name refinements of their block, with the right rank, read what is readable and write what is not IN."""
    refs = {ref.into: ref for ref in site.block.refs}
    for number, statement in _flat(site.block):
        reads, writes = buffers_read(statement), buffers_written(statement)
        prefix = f"statement {number}, {print_statement(statement, number)!r},"
        for name in (*reads, *writes):
            if name not in refs:
                yield f"{prefix} names {name}, which is no refinement of its block"
        for name in reads:
            if name in refs and refs[name].dir is Direction.OUT:
                yield f"{prefix} reads {name}, which is write-only here"
        for name in writes:
            if name in refs and (refs[name].dir is Direction.IN or refs[name].const):
                yield f"{prefix} writes {name}, which is read-only here"
        yield from (f"{prefix} {m}" for m in _shapes(statement, refs))


def _shapes(statement: Statement, refs: dict[str, Refinement]) -> Iterator[str]:
    match statement:
        case Load(_, name, at) | Store(name, _, at):
            if at and name in refs and len(at) != len(refs[name].type.sizes):
                yield f"has {len(at)} subscripts for {len(refs[name].type.sizes)} dimensions"
        case Transfer(dst, src):
            if dst in refs and src in refs:
                to, from_ = refs[dst].type, refs[src].type
                longer = [[size for size in t.sizes if size != 1] for t in (to, from_)]
                if to.dtype is not from_.dtype or longer[0] != longer[1]:
                    yield f"copies {from_.dtype}{from_.sizes} to {to.dtype}{to.sizes}"
        case _:
            pass


def reductions(site: Site) -> Iterator[str]:
    """Reduce runs over indexes of its own block; waits and transfers count from zero."""
    for number, statement in enumerate(site.block.body):
        match statement:
            case Reduce(_, _, _, over):
                unknown = sorted(set(over) - site.indexes)
                if unknown or not over:
                    yield f"statement {number} reduces over {unknown[0] if unknown else 'nothing'}"
            case Wait(group, pending):
                if group < 0 or pending < 0:
                    yield f"statement {number} waits for group {group} with {pending} pending"
            case Sync() | Transfer() | _:
                pass


# --- programs ------------------------------------------------------------------------------------


def entry_buffers(program: Program) -> Iterator[str]:
    """The entry allocates everything, and inputs, outputs and constants are among its allocations."""
    refs = {ref.into: ref for ref in program.entry.refs}
    for ref in program.entry.refs:
        if ref.dir is not Direction.ALLOC:
            yield f"the entry block refines {ref.into}; it can only allocate"
    for kind, names in (("input", program.inputs), ("output", program.outputs)):
        if len(set(names)) != len(names):
            yield f"an {kind} is listed twice"
        for name in names:
            if name not in refs:
                yield f"{kind} {name} is not allocated by the entry block"
    for name in sorted(set(program.inputs) & {c.name for c in program.constants}):
        yield f"{name} is both an input and a constant"


def constants(program: Program) -> Iterator[str]:
    """A constant has an allocation of its type and data of its size."""
    refs = {ref.into: ref for ref in program.entry.refs}
    for constant in program.constants:
        size = prod(constant.type.sizes) * constant.type.dtype.bytes
        if len(constant.data) != size:
            yield f"constant {constant.name} has {len(constant.data)} bytes, not {size}"
        ref = refs.get(constant.name)
        if ref is None:
            yield f"constant {constant.name} is not allocated by the entry block"
        elif (ref.type.dtype, ref.type.sizes) != (constant.type.dtype, constant.type.sizes):
            yield f"constant {constant.name} and its allocation differ in type"


CHECKS: tuple[Check, ...] = (
    nesting,
    unique_names,
    index_fields,
    known_index_names,
    allocations,
    ranks,
    sources,
    aggregations,
    dependencies,
    buffers,
    scalars,
    reductions,
)
"""Every check of a block, in the order in which they run."""
PROGRAM_CHECKS: tuple[Callable[[Program], Iterable[str]], ...] = (entry_buffers, constants)
