"""Products of teams of sub-groups as PTX: ``wgmma``, for which NVIDIA's OpenCL compiler has no target.

Its assembler has one, sm_90a. So these instructions stand in the text as comments of PTX, which `retargeted` makes
instructions of in what the compiler has made of the program (`hal_opencl.compiler` has that assembled).
"""

from __future__ import annotations

import re

from tile_ir.matrix import PANEL_BYTES, MatrixInstruction

HIDDEN = "//@ "
"""What stands before an instruction for another target."""
TARGETS = ".target sm_90,", ".target sm_90a,"
ATOM = 8 * PANEL_BYTES
"""Bytes of eight rows, after which the swizzle starts anew."""
COMPLETE = f'asm volatile("{HIDDEN}fence.proxy.async.shared::cta;" ::: "memory");'
"""What a work item has written to local memory is there for the products of others, behind the next barrier."""


_GROUPS = re.compile(r"//# groups (\d+)")
_SIZE = re.compile(r"^\.reqntid .*$", re.MULTILINE)


def resident(count: int) -> str:
    """A core is to have registers for so many groups at once: for `retargeted`, OpenCL C has no words for it."""
    return f'asm volatile("//# groups {count}" ::: "memory");'


def retargeted(ptx: str) -> str:
    """The PTX of a program with its hidden instructions, for the target that has them."""
    text, groups = ptx.replace(HIDDEN, "").replace(*TARGETS), _GROUPS.search(ptx)
    return text if groups is None else _SIZE.sub(rf"\g<0>\n.minnctapersm {groups[1]}", text, count=1)


def multiply(name: str, instruction: MatrixInstruction, a_panels: bool, b_panels: bool) -> str:
    """Start a product of one team; factors by their descriptors, sums by pieces that are not to be read yet."""
    count, lanes = instruction.sides["n"] // instruction.c.sizes[1], instruction.c.registers
    registers = [f"r{n}" for n in range(count * lanes)]
    sums = ", ".join(f"%{n}" for n in range(len(registers)))
    m, n, k = instruction.shape
    kind = instruction.name.rpartition("_")[2]
    text = f"wgmma.mma_async.sync.aligned.m{m * instruction.team}n{n}k{k}.f32.{kind}.{kind}"
    factors = f"%{len(registers)}, %{len(registers) + 1}, p, 1, 1"
    if instruction.a.dtype.bytes == 2:  # rows of wider factors run along the depth, and nothing can be said of them
        factors += f", {int(a_panels)}, {int(b_panels)}"
    return "\n".join([
        f"void {name}({_pieces(count, lanes)}, ulong a, ulong b) {{",
        *_taken(count, lanes),
        f'    asm volatile("{HIDDEN}{{.reg .pred p; setp.ne.u32 p, 1, 0; {text} {{{sums}}}, {factors};}}"',
        f'        : {_tied(registers)} : "l"(a), "l"(b) : "memory");',
        *_given(count, lanes),
        "}",
    ])  # fmt: skip


FENCE = f'asm volatile("{HIDDEN}wgmma.fence.sync.aligned;" ::: "memory");'
"""Before the first product of a batch: the sums are in their registers."""


def fence(name: str, count: int, lanes: int) -> str:
    """The same, for sums that nothing adds to yet: their values are in registers of their own before it, not behind."""
    registers = [f"r{n}" for n in range(count * lanes)]
    return "\n".join([
        f"void {name}({_pieces(count, lanes)}) {{",
        *_taken(count, lanes),
        f'    asm volatile("{HIDDEN}wgmma.fence.sync.aligned;" : {_tied(registers)} :: "memory");',
        *_given(count, lanes),
        "}",
    ])  # fmt: skip


def wait(name: str, count: int, lanes: int, pending: int) -> str:
    """Close the batch of products, and wait until at most so many are unfinished; the sums come out of it."""
    registers = [f"r{n}" for n in range(count * lanes)]
    return "\n".join([
        f"void {name}({_pieces(count, lanes)}) {{",
        *_taken(count, lanes),
        f'    asm volatile("{HIDDEN}wgmma.commit_group.sync.aligned;" ::: "memory");',
        f'    asm volatile("{HIDDEN}wgmma.wait_group.sync.aligned {pending};" : {_tied(registers)} :: "memory");',
        *_given(count, lanes),
        "}",
    ])  # fmt: skip


def descriptor(name: str) -> str:
    """A factor that begins so many bytes behind the start of an array: rows swizzled in `ATOM`s that follow one another, panels
    so many bytes apart.

    Added up in units of 16 bytes, since the assembler then adds a constant to what is the same for several products.
    """
    return (
        f"ulong {name}(local const void* array, uint first, uint apart) {{\n"
        f"    const uint at = ((uint)(size_t)array >> 4) + (first >> 4);\n"
        f"    return 1UL << 62 | {ATOM >> 4}UL << 32 | (ulong)(apart >> 4) << 16 | (ulong)at;\n}}"
    )


def _pieces(count: int, lanes: int) -> str:
    return ", ".join(f"float{lanes}* c{n}" for n in range(count))


def _taken(count: int, lanes: int) -> list[str]:
    """The elements of all pieces as variables of their own, which inline assembly can tie."""
    return [f"    float {', '.join(f'r{lanes * n + e} = c{n}->s{e:x}' for e in range(lanes))};" for n in range(count)]


def _given(count: int, lanes: int) -> list[str]:
    return [
        f"    *c{n} = (float{lanes})({', '.join(f'r{lanes * n + e}' for e in range(lanes))});" for n in range(count)
    ]


def _tied(registers: list[str]) -> str:
    return ", ".join(f'"+f"({name})' for name in registers)
