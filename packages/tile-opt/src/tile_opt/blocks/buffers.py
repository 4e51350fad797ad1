"""The buffers of a program's main block: temporaries, who uses them, adding and dropping them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import gcd
from operator import mul

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Layout, Program, Refinement, Statement, TensorType
from tile_ir.stripe.walk import buffers_named, buffers_written

from tile_opt.blocks.tree import blocks_of, main_of, rebase, with_kernels

Box = tuple[range, ...]
"""The cells of each dimension."""


def temporaries(program: Program) -> frozenset[str]:
    """Names of the buffers that main allocates."""
    return frozenset(r.into for r in main_of(program).refs if r.dir is Direction.ALLOC)


def users(program: Program, kernels: Iterable[Statement | None] | None = None) -> dict[str, frozenset[int]]:
    """The kernels that name each buffer of main, by their numbers; `kernels` instead of the program's."""
    found: dict[str, set[int]] = {r.into: set() for r in main_of(program).refs}
    for number, kernel in enumerate(main_of(program).body if kernels is None else kernels):
        for name in buffers_named(kernel) if isinstance(kernel, Block) else ():
            found[name].add(number)
    return {name: frozenset(numbers) for name, numbers in found.items()}


def writer_counts(program: Program) -> Counter[str]:
    """How many kernels write each buffer of main."""
    return Counter(name for k in blocks_of(main_of(program)) for name in {*buffers_written(k)})


EXPANSION = 2
"""Times as many bytes as it reads that a kernel may leave in memory to be run less often."""


def wholes(program: Program) -> dict[str, str]:
    """The buffer behind each name of main that is a part of another one."""
    return {r.into: r.source for r in main_of(program).refs if r.source not in ("", r.into)}


def part_ref(
    name: str, type: TensorType, whole: tuple[str, TensorType], starts: Sequence[int], dir: Direction
) -> Refinement:
    """A part of a buffer of the program as a buffer of main: as large as `type`, from the cell `starts` on."""
    start = sum(map(mul, starts, whole[1].strides)) * type.dtype.bytes
    layout = Layout(whole[1].strides, gcd(type.layout.align, start))
    access = tuple(Affine((), cell) for cell in starts)
    return Refinement(dir, name, whole[0], access, replace(type, layout=layout))


def with_parts(program: Program, parts: Iterable[Refinement], kernels: Iterable[Statement]) -> Program:
    """`program` with these kernels and parts; temporaries of which there are parts come to main from outside."""
    main, made = main_of(program), {part.into: part for part in _evenly_aligned(tuple(parts))}
    divided = {part.source for part in made.values()} & temporaries(program)
    outside = {r.into: r for r in main.refs if r.into in divided}
    seen = made | {name: replace(r, dir=Direction.INOUT, source=name) for name, r in outside.items()}
    body = tuple(_through(kernel, seen) for kernel in kernels)
    refs = {r.into: r for r in main.refs} | seen
    main = replace(main, refs=tuple(refs.values()), body=body)
    return replace(program, entry=replace(program.entry, refs=(*program.entry.refs, *outside.values()), body=(main,)))


MANY = 8
"""Parts of one buffer of which none promises a better alignment than another: kernels that are alike but for it stay so."""


def _evenly_aligned(parts: Sequence[Refinement]) -> Iterator[Refinement]:
    counts = Counter(part.source for part in parts)
    least = {name: gcd(*(p.type.layout.align for p in parts if p.source == name)) for name in counts}
    for part in parts:
        align = least[part.source] if counts[part.source] >= MANY else part.type.layout.align
        yield replace(part, type=replace(part.type, layout=replace(part.type.layout, align=align)))


def _through(kernel: Statement, parts: Mapping[str, Refinement]) -> Statement:
    """`kernel` with the strides of the parts that it names."""
    for name in sorted(buffers_named(kernel) & parts.keys()):
        kernel = rebase(kernel, name, parts[name])
    return kernel


def in_the_way(
    between: Iterable[Statement | None], reads: Set[str], writes: Set[str], wholes: Mapping[str, str]
) -> bool:
    """A kernel writes what another one reads, or touches what that writes: the other cannot move past it.

    `wholes` are those of the program: a buffer and a part of it are one and the same memory.
    """

    def memory(names: Iterable[str]) -> set[str]:
        return {wholes.get(name, name) for name in names}

    reads, writes = memory(reads), memory(writes)
    kernels = [k for k in between if isinstance(k, Block)]
    return any(reads & memory(buffers_written(k)) or writes & memory(buffers_named(k)) for k in kernels)


def fixed_kernels(program: Program) -> frozenset[int]:
    """Numbers of the kernels that read constants and bound inputs alone, and what such kernels make: they run seldom.

    What several kernels write part by part is made anew in every run.
    """
    return _fixed(program)[0]


def fixed_buffers(program: Program) -> frozenset[str]:
    """Buffers of main that no call changes: constants, bound inputs and what `fixed_kernels` write."""
    return _fixed(program)[1]


def _fixed(program: Program) -> tuple[frozenset[int], frozenset[str]]:
    main = main_of(program)
    sizes = {r.into: r.type.nbytes for r in main.refs}
    known = {r.into for r in main.refs if r.const}
    alone = {name for name, count in writer_counts(program).items() if count == 1}
    temps = temporaries(program) & alone
    found: set[int] = set()
    for number, kernel in enumerate(main.body) if known else ():
        if not isinstance(kernel, Block):
            continue
        reads = {r.source for r in kernel.refs if r.dir is Direction.IN}
        writes = {*buffers_written(kernel)}
        small = sum(sizes[b] for b in writes) <= EXPANSION * sum(sizes[b] for b in reads)
        if reads and reads <= known and writes <= temps and small:
            found.add(number)
            known |= writes
    return frozenset(found), frozenset(known)


def with_main_refs(program: Program, refs: tuple[Refinement, ...]) -> Program:
    """`program` with the refinements of its main block replaced."""
    main = replace(main_of(program), refs=refs)
    return replace(program, entry=replace(program.entry, body=(main,)))


def drop_unused_temporaries(program: Program) -> Program:
    """Remove main's allocations that no kernel names any more."""
    main = main_of(program)
    refs, named = main.refs, {name for kernel in blocks_of(main) for name in buffers_named(kernel)}
    kept = tuple(r for r in refs if r.dir is not Direction.ALLOC or r.into in named)
    return program if len(kept) == len(refs) else with_main_refs(program, kept)


def with_joined(program: Program, kernels: Sequence[Statement | None]) -> Program:
    """`program` with these kernels; where some became part of others (None), temporaries that they alone named go with them."""
    kept = tuple(k for k in kernels if k is not None)
    return program if len(kept) == len(kernels) else drop_unused_temporaries(with_kernels(program, kept))


def drop_unread_kernels(program: Program) -> Program:
    """Remove the kernels that no output needs: what an empty tensor, or one without contributions, would be made of."""
    main = main_of(program)
    behind = wholes(program)
    needed = {r.into for r in main.refs if r.dir in (Direction.OUT, Direction.INOUT)}
    kept: list[Statement] = []
    for kernel in reversed(main.body):
        if not isinstance(kernel, Block) or not needed.isdisjoint(buffers_written(kernel)):
            kept.append(kernel)
            named: Set[str] = buffers_named(kernel)
            while named:
                needed |= named
                named = {behind[n] for n in named if n in behind}
    if len(kept) == len(main.body):
        return program
    main = replace(main, body=tuple(reversed(kept)))
    return drop_unused_temporaries(replace(program, entry=replace(program.entry, body=(main,))))


def first_fit(size: int, blocked: Sequence[tuple[int, int]], alignment: int, start: int = 0) -> int:
    """The lowest aligned offset from `start` where `size` bytes meet no blocked interval."""
    offset = -(-start // alignment) * alignment
    for low, high in sorted(blocked):
        if offset + size > low and offset < high:
            offset = -(-high // alignment) * alignment
    return offset
