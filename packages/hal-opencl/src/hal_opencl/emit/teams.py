"""Products of teams of sub-groups as PTX: ``wgmma``, for which NVIDIA's OpenCL compiler has no target.

Its assembler has one, sm_90a. So these instructions stand in the text as comments of PTX, which `retargeted` makes
instructions of in what the compiler has made of the program (`hal_opencl.compiler` has that assembled).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tile_ir.dtype import DType
from tile_ir.matrix import (
    CHUNK_BYTES,
    LANES,
    MANTISSA_BITS,
    MATRIX_INSTRUCTIONS,
    OWN_BYTES,
    PANEL_BYTES,
    TF32_BITS,
    MatrixInstruction,
    elements,
)
from tile_ir.semtree.nodes import Type

from hal_opencl.emit.types import register

HIDDEN = "//@ "
"""What stands before an instruction for another target."""
TARGETS = ".target sm_90,", ".target sm_90a,"
ATOM = 8 * PANEL_BYTES
"""Bytes of eight rows, after which the swizzle starts anew."""
ROUNDED = MATRIX_INSTRUCTIONS["mma_m16n8k8_tf32"].a
"""How the lanes of a sub-group hold its rows of a first factor that is rounded: as those of the single instruction do."""
PERIOD = ATOM // ROUNDED.dtype.bytes
"""Elements of these rows: behind them the swizzle starts anew."""
KINDS: Mapping[DType, str] = {
    DType.FLOAT32: "tf32", DType.BFLOAT16: "bf16", DType.FLOAT16: "f16", DType.INT8: "s8", DType.UINT8: "u8",
}  # fmt: skip
"""What instructions call the dtypes of factors."""
HALF = 1 << (MANTISSA_BITS - TF32_BITS - 1)
_ITEM = "get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2))"
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


STAY = " {.reg .pred p; .reg .b32 n; mov.b32 n, %%nctaid.x; setp.eq.b32 p, n, 0; @p trap;}"
"""A branch that nothing takes. The assembler makes one instruction of two conversions to float16, and moves it in front of the
wait for what it converts, but not out of the branch's shadow."""
FENCE = f'asm volatile("{HIDDEN}wgmma.fence.sync.aligned;" ::: "memory");'
"""Before the first product of a batch: the sums are in their registers."""


def multiply(name: str, instruction: MatrixInstruction, a_panels: bool, b_panels: bool) -> str:
    """Start a product of one team; factors by their descriptors, sums by pieces that are not to be read yet."""
    count, piece = _pieces_of(instruction)
    options = "p" if instruction.is_exact else "p, 1, 1"
    if not instruction.along_depth:
        options += f", {int(a_panels)}, {int(b_panels)}"
    return "\n".join([
        f"void {name}({_pieces(count, piece)}, ulong a, ulong b) {{",
        *_taken(count, piece),
        *_started(instruction, ['"l"(a)'], options),
        *_given(count, piece),
        "}",
    ])  # fmt: skip


def multiply_held(name: str, instruction: MatrixInstruction, pairs: int, b_panels: bool) -> str:
    """The same with a first factor of 16 bits in registers, so many pairs of an item's own elements."""
    count, piece = _pieces_of(instruction)
    return "\n".join([
        f"void {name}({_pieces(count, piece)}, {', '.join(f'ushort2 a{n}' for n in range(pairs))}, ulong b) {{",
        *_taken(count, piece),
        *_started(instruction, [f'"r"(as_uint(a{n}))' for n in range(pairs)], f"p, 1, 1, {int(b_panels)}"),
        *_given(count, piece),
        "}",
    ])  # fmt: skip


def multiply_rounded(name: str, instruction: MatrixInstruction) -> str:
    """The same with a first factor in registers, as `read` gives it."""
    count, piece = _pieces_of(instruction)
    return "\n".join([
        f"void {name}({_pieces(count, piece)}, uint{ROUNDED.registers} a, ulong b) {{",
        *_taken(count, piece),
        f"    {FENCE}",
        *_started(instruction, [f'"r"(a.s{n})' for n in range(ROUNDED.registers)], "p, 1, 1"),
        *_given(count, piece),
        "}",
    ])  # fmt: skip


def read(name: str, instruction: MatrixInstruction, panels: bool) -> str:
    """An item's own elements of a first factor, rounded: to be multiplied out of registers.

    The factor is an array, the number of its first element as a sum with a constant of whole periods, which is added last, and how
    many elements its panels are apart.
    """
    numbers = range(ROUNDED.registers)
    # Half of the last bit that counts; those behind it are not read.
    rounded = (f"fabs(x{n}) < INFINITY ? as_uint(x{n}) + {HALF:#x}u : as_uint(x{n})" for n in numbers)
    return "\n".join([
        f"uint{ROUNDED.registers} {name}(local const float* a, uint first, uint behind, uint apart) {{",
        f"    const uint item = {_ITEM};",
        f"    const uint row = item / {LANES} % {instruction.team} * {instruction.sides['m']} + item % {LANES} / 4;",
        "    const uint k = item % 4;",
        f"    float {', '.join(f'x{n}' for n in numbers)};",
        *(
            f'    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x{n}) : "r"((uint)(size_t)a + {place}) : "memory");'
            for n, place in enumerate(_read_places(instruction, panels))
        ),
        f"    return (uint{ROUNDED.registers})({', '.join(rounded)});",
        "}",
    ])  # fmt: skip


def _read_places(instruction: MatrixInstruction, panels: bool) -> Iterator[str]:
    """Bytes from the array's start to each element that a lane reads.

    The first one is in the first of the rows that the swizzle tells apart, so that what is turned is the same in all steps.
    """
    width = instruction.a.dtype.bytes
    line, chunk = (n // width for n in (PANEL_BYTES, OWN_BYTES if panels else CHUNK_BYTES))
    rows = line // chunk
    for m, k in (elements(ROUNDED)[0, number] for number in range(ROUNDED.registers)):
        if panels:
            column = f"((row + {m}) % {line} ^ (k + {k}) % {rows} * {chunk})"
            yield f"{width} * ((row + {m}) / {line} * apart + (k + {k}) * {line} + {column}) + {width} * first + {width} * behind"
        else:
            column = f"(first % {line} + k + {k} ^ (row + {m}) % {rows} * {chunk})"
            yield f"{width} * ((row + {m}) * {line} + {column}) + {width} * (first / {line} * {line}) + {width} * behind"


def _started(instruction: MatrixInstruction, first: Sequence[str], options: str) -> Iterator[str]:
    """The instruction itself: a descriptor of the first factor or its registers, and the descriptor `b`."""
    pieces, piece = _pieces_of(instruction)
    (m, n, k), count = instruction.shape, pieces * piece.lanes
    sums = "s32" if instruction.is_exact else "f32"
    kinds = ".".join((sums, KINDS[instruction.a.dtype], KINDS[instruction.b.dtype]))
    text = f"wgmma.mma_async.sync.aligned.m{m * instruction.team}n{n}k{k}.{kinds}"
    *own, second = (f"%{count + operand}" for operand in range(len(first) + 1))
    sums, factor = ", ".join(f"%{r}" for r in range(count)), ", ".join(own)
    factors = f"{factor if len(own) == 1 else f'{{{factor}}}'}, {second}, {options}"
    yield f'    asm volatile("{HIDDEN}{{.reg .pred p; setp.ne.u32 p, 1, 0; {text} {{{sums}}}, {factors};}}"'
    yield f"""        : {_tied(count, piece)} : {", ".join(first)}, "l"(b) : "memory");"""


def _pieces_of(instruction: MatrixInstruction) -> tuple[int, Type]:
    """Pieces of a sub-group's sums, and what a lane holds of each."""
    return instruction.sides["n"] // instruction.c.sizes[1], Type(instruction.c.dtype, instruction.c.registers)


def suffix(piece: Type) -> str:
    """Of the names of functions whose sums are integers."""
    return "" if piece.dtype.is_float else "_integers"


def fence(name: str, count: int, piece: Type) -> str:
    """The same, for sums that nothing adds to yet: their values are in registers of their own before it, not behind."""
    return "\n".join([
        f"void {name}({_pieces(count, piece)}) {{",
        *_taken(count, piece),
        f'    asm volatile("{HIDDEN}wgmma.fence.sync.aligned;" : {_tied(count * piece.lanes, piece)} :: "memory");',
        *_given(count, piece),
        "}",
    ])  # fmt: skip


def wait(name: str, count: int, piece: Type, pending: int, packed: bool = False) -> str:
    """Close the batch of products, and wait until at most so many are unfinished; the sums come out of it.

    They may be `packed` into pairs of 16-bit floats behind it.
    """
    end = STAY if packed and not pending else ""
    return "\n".join([
        f"void {name}({_pieces(count, piece)}) {{",
        *_taken(count, piece),
        f'    asm volatile("{HIDDEN}wgmma.commit_group.sync.aligned;" ::: "memory");',
        f'    asm volatile("{HIDDEN}wgmma.wait_group.sync.aligned {pending};{end}" : {_tied(count * piece.lanes, piece)} :: "memory");',
        *_given(count, piece),
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


def _pieces(count: int, piece: Type) -> str:
    return ", ".join(f"{register(piece.dtype, piece.lanes)}* c{n}" for n in range(count))


def _taken(count: int, piece: Type) -> list[str]:
    """The elements of all pieces as variables of their own, which inline assembly can tie."""
    lanes, T = piece.lanes, register(piece.dtype)
    return [f"    {T} {', '.join(f'r{lanes * n + e} = c{n}->s{e:x}' for e in range(lanes))};" for n in range(count)]


def _given(count: int, piece: Type) -> list[str]:
    lanes, T = piece.lanes, register(piece.dtype, piece.lanes)
    return [f"    *c{n} = ({T})({', '.join(f'r{lanes * n + e}' for e in range(lanes))});" for n in range(count)]


def _tied(count: int, piece: Type) -> str:
    constraint = "f" if piece.dtype.is_float else "r"
    return ", ".join(f'"+{constraint}"(r{n})' for n in range(count))
