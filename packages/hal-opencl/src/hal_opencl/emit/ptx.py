"""NVIDIA's instructions as functions in front of a kernel: PTX inside OpenCL C.

Each maker gives the lines of one function; `name` is its identifier. A pointer to local memory is the address that
PTX calls shared, and bfloat16 values are floats whose low 16 bits are 0 (`hal_opencl.emit.types`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

from tile_ir.dtype import DType
from tile_ir.matrix import MatrixInstruction
from tile_ir.ops import Aggregation
from tile_ir.semtree.nodes import Space, Type

from hal_opencl.emit.types import lane, memory, register, unsigned

TOGETHER = 'asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");'
"""All lanes of a sub-group are here, and see what the others stored."""
MNEMONICS: Mapping[str, str] = {
    "mma_m16n8k8_tf32": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma_m16n8k16_bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma_m16n8k16_f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma_m16n8k8_f64": "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64",
    "mma_m8n8k4_f64": "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
}
"""The matrix instructions of `tile_ir.matrix` that can be written; those of teams are in `hal_opencl.emit.teams`."""
COPIES: Mapping[int, str] = {
    4: "cp.async.ca.shared.global [%0], [%1], 4;",
    8: "cp.async.ca.shared.global [%0], [%1], 8;",
    16: "cp.async.cg.shared.global [%0], [%1], 16;",
}
"""Asynchronous copies by their bytes; 16 bytes go past the first cache."""
SHUFFLES: Mapping[str, tuple[str, int]] = {
    "broadcast": ("idx", 31), "shuffle": ("idx", 31), "shuffle_xor": ("bfly", 31),
    "shuffle_up": ("up", 0), "shuffle_down": ("down", 31),
}  # fmt: skip
"""Collectives that hand values on: the instruction's mode, and the lane beyond which there is none."""
COMMIT = 'asm volatile("cp.async.commit_group;" ::: "memory");'


def wait(groups: int) -> str:
    """Wait until at most this many of the latest commit groups are unfinished."""
    return f'asm volatile("cp.async.wait_group {groups};" ::: "memory");'


def copy_async(name: str, nbytes: int, fill: bool = False) -> str:
    """Start to copy bytes from global to local memory; with `fill` zeros, and nothing is read, where they are not there."""
    text, there, size = COPIES[nbytes], "", ""
    if fill:  # how many bytes are read; the hardware makes the others 0
        text, there, size = text.replace(";", ", %2;"), ", bool there", f', "r"(there ? {nbytes} : 0)'
    return (
        f"void {name}(local void* to, global const void* from{there}) {{\n"
        f'    asm volatile("{text}" :: "r"((uint)(size_t)to), "l"((ulong)(size_t)from){size} : "memory");\n}}'
    )


def merge(name: str, agg: Aggregation, dtype: DType) -> str:
    """Merge an integer into global memory indivisibly; nothing waits for what was there."""
    kind = f"{'s' if dtype.is_signed and agg is not Aggregation.SUM else 'u'}{dtype.bits}"
    constraint = "l" if dtype.bits == 64 else "r"
    return (
        f"void {name}(volatile global {register(dtype)}* p, {register(dtype)} x) {{\n"
        f'    asm volatile("red.global.{agg.op}.{kind} [%0], %1;"'
        f' :: "l"((ulong)(size_t)p), "{constraint}"(x) : "memory");\n}}'
    )


def merger(space: Space, agg: Aggregation, bits: int) -> Callable[[str, Aggregation, DType], str] | None:
    """What writes the function that merges integers of so many bits into a memory; None where OpenCL's own are as good."""
    extreme = agg in (Aggregation.MAX, Aggregation.MIN)
    if space is Space.GLOBAL:
        return merge if extreme or agg is Aggregation.SUM else None
    return merge_near if extreme or (agg is Aggregation.SUM and bits == 64) else None


def merge_near(name: str, agg: Aggregation, dtype: DType) -> str:
    """The same in local memory: sums of 64 bits word by word, extremes where they are beyond what is there.

    Of 64 bits there are loops alone, which take ever longer the more items meet.
    """
    if agg is Aggregation.SUM:
        code = (
            ".reg .u32 low, high, old; mov.b64 {low, high}, %1; atom.shared.add.u32 old, [%0], low; "
            "add.cc.u32 old, old, low; addc.u32 high, high, 0; red.shared.add.u32 [%0+4], high;"
        )
    else:
        kind, test = f"{'s' if dtype.is_signed else 'u'}{dtype.bits}", "lt" if agg is Aggregation.MAX else "gt"
        code = (
            f".reg .pred beyond; .reg .{kind} old; ld.volatile.shared.{kind} old, [%0]; "
            f"setp.{test}.{kind} beyond, old, %1; @beyond red.shared.{agg.op}.{kind} [%0], %1;"
        )
    constraint = "l" if dtype.bits == 64 else "r"
    return (
        f"void {name}(volatile local {register(dtype)}* p, {register(dtype)} x) {{\n"
        f'    asm volatile("{{{code}}}" :: "r"((uint)(size_t)p), "{constraint}"(x) : "memory");\n}}'
    )


def shuffle(name: str, op: str, dtype: DType) -> str:
    """What another lane of the sub-group has in `x`: which one, the word `other` says as `op` reads it (`SHUFFLES`)."""
    T, wide = register(dtype), dtype.bits == 64
    words = ["w.x", "w.y"] if wide else ["w"]
    mode, last = SHUFFLES[op]
    bits = f"as_uint{2 if wide else ''}(x)" if wide or dtype.is_float else "(uint)x"
    back = f"as_{T}(w)" if wide or dtype.is_float else f"({T})w"
    # Volatile, as products of a sub-group are: all lanes execute it together.
    return "\n".join([
        f"{T} {name}({T} x, int other) {{",
        f"    uint{2 if wide else ''} w = {bits};",
        *(f'    asm volatile("shfl.sync.{mode}.b32 %0, %0, %1, {last}, 0xffffffff;" : "+r"({w}) : "r"(other));' for w in words),
        f"    return {back};",
        "}",
    ])  # fmt: skip


def reduce_lanes(name: str, op: str, dtype: DType) -> str:
    """The merge of all lanes' integers of 32 bits."""
    T = register(dtype)
    return (
        f"{T} {name}({T} x) {{\n    {T} r;\n"
        f'    asm volatile("redux.sync.{op}.{"s" if dtype.is_signed else "u"}32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(x));\n'
        "    return r;\n}"
    )


def round_tf32(name: str, t: Type) -> str:
    """Floats rounded to 10 mantissa bits, ties away from zero.

    A NaN that arithmetic makes (a quiet one) stays NaN. A signalling one whose bits are all among those that are dropped
    becomes an infinity, as in the matrix units themselves: to keep it too would cost half as much again as the product.
    """
    # Not volatile: it may be moved, shared and dropped like any arithmetic.
    F, lanes = register(t.dtype, t.lanes), range(t.lanes)
    lines = [f"{F} {name}({F} x) {{", f"    uint {', '.join(f'r{n}' for n in lanes)};"]
    for n in lanes:
        lines.append(f'    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r{n}) : "f"({lane("x", n, t.lanes)}));')
    words = "r0" if t.lanes == 1 else f"({unsigned(t.dtype, t.lanes)})({', '.join(f'r{n}' for n in lanes)})"
    return "\n".join([*lines, f"    return as_{F}({words});", "}"])


def extreme(name: str, op: str, t: Type) -> str:
    """max or min of floats, NaN if either is NaN, as one instruction a lane: comparing and selecting takes seven."""
    F, lanes = register(t.dtype, t.lanes), range(t.lanes)
    lines = [f"{F} {name}({F} a, {F} b) {{", f"    float {', '.join(f'r{n}' for n in lanes)};"]
    for n in lanes:
        operands = f'"f"({lane("a", n, t.lanes)}), "f"({lane("b", n, t.lanes)})'
        lines.append(f'    asm("{op}.NaN.f32 %0, %1, %2;" : "=f"(r{n}) : {operands});')
    value = "r0" if t.lanes == 1 else f"({F})({', '.join(f'r{n}' for n in lanes)})"
    return "\n".join([*lines, f"    return {value};", "}"])


def round_bfloat(name: str, t: Type) -> str:
    """Floats rounded to bfloat16 (nearest even), as floats: two at once."""
    F, lanes = register(t.dtype, t.lanes), range(0, t.lanes, 2)
    lines = [f"{F} {name}({F} x) {{", f"    uint {', '.join(f'r{n}' for n in lanes)};"]
    halves: list[str] = []
    for n in lanes:
        low, high = lane("x", n, t.lanes), lane("x", n + 1, t.lanes) if n + 1 < t.lanes else "0.0f"
        lines.append(f'    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r{n}) : "f"({high}), "f"({low}));')
        halves += [f"as_float(r{n} << 16)", f"as_float(r{n} & 0xffff0000u)"]
    value = halves[0] if t.lanes == 1 else f"({F})({', '.join(halves[: t.lanes])})"
    return "\n".join([*lines, f"    return {value};", "}"])


def bfloat_bits(name: str) -> str:
    """Two bfloat16 values as memory has them: a word, which need not be put together where they were rounded together."""
    word = _bfloats("x", 2)[0]
    return f"ushort2 {name}(float2 x) {{ return as_ushort2({word}); }}"


def floats(name: str, t: Type) -> str:
    """16-bit floats that waited in words, as floats."""
    F, count = register(t.dtype, t.lanes), t.lanes // 2
    pieces = ", ".join(_HALVES[t.dtype].format(word=lane("w", n, count)) for n in range(count))
    return f"{F} {name}({memory(DType.UINT32, count)} w) {{ return ({F})({pieces}); }}"


def multiply(name: str, instruction: MatrixInstruction) -> str:
    """The product of one sub-group; operands and result are the registers of a lane, in order."""
    parts, sums = (instruction.a, instruction.b, instruction.c), instruction.c.dtype
    A, B, C = (register(o.dtype, o.registers) for o in parts)
    a, b, c = (o.registers for o in parts)
    outputs = [f"d{n}" for n in range(c)]
    words, kind = _WORDS[instruction.a.dtype], _KINDS[sums]
    inputs = [words("a", a), words("b", b), [lane("c", n, c) for n in range(c)]]
    factor = kind if instruction.a.dtype is DType.FLOAT64 else "r"
    constraints = [factor, factor, kind]
    ends = list(accumulate(map(len, inputs), initial=c))
    operands = ", ".join(_registers(start, stop) for start, stop in pairwise([0, *ends]))
    lists = [", ".join(f'"{kind}"({text})' for text in texts) for kind, texts in zip(constraints, inputs, strict=True)]
    # Volatile, though it touches no memory: all lanes must execute it together, and nothing else tells the compiler
    # not to move it to where its result is used, which may be under a lane's condition. The assembler, which knows
    # the instruction, still schedules it freely.
    return "\n".join([
        f"{C} {name}({A} a, {B} b, {C} c) {{",
        f"    {register(sums)} {', '.join(outputs)};",
        f'    asm volatile("{MNEMONICS[instruction.name]} {operands};"',
        f"        : {_outputs(kind, outputs)}",
        "        : " + ",\n          ".join(lists) + ");",
        f"    return ({C})({', '.join(outputs)});",
        "}",
    ])  # fmt: skip


def load_matrices(name: str, dtype: DType, count: int, transpose: bool) -> str:
    """Matrices of 16-bit floats from local memory: a lane's two elements of each, as floats."""
    words = [f"r{n}" for n in range(count)]
    text = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transpose else ''}.shared.b16"
    halves = ", ".join(_HALVES[dtype].format(word=word) for word in words)
    lanes = 2 * count
    return "\n".join([
        f"float{lanes} {name}(local const void* row) {{",
        f"    uint {', '.join(words)};",
        f'    asm volatile("{text} {_registers(0, count)}, [%{count}];"',
        f"        : {_outputs('r', words)} : \"r\"((uint)(size_t)row) : \"memory\");",
        f"    return (float{lanes})({halves});",
        "}",
    ])  # fmt: skip


_HALF = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable"
"""NVIDIA's compiler has half (not its `as_` functions), though its devices do not list it."""
PACK_HALVES = f"""{_HALF}
uint tile_pack_halves(float low, float high) {{ return __builtin_astype((half2)((half)low, (half)high), uint); }}"""
UNPACK_HALVES = f"""{_HALF}
float2 tile_unpack_halves(uint word) {{ const half2 both = __builtin_astype(word, half2); return (float2)(both.x, both.y); }}"""
"""Conversions that the compiler sees through: packing what was unpacked costs nothing but moves."""
_HALVES: Mapping[DType, str] = {
    DType.BFLOAT16: "as_float({word} << 16), as_float({word} & 0xffff0000u)",
    DType.FLOAT16: "tile_unpack_halves({word})",
}
"""The two elements of a word as floats, the one of the low half first."""


def _registers(start: int, stop: int) -> str:
    return "{" + ", ".join(f"%{n}" for n in range(start, stop)) + "}"


def _outputs(constraint: str, names: Sequence[str]) -> str:
    return ", ".join(f'"={constraint}"({name})' for name in names)


def _plain(vector: str, lanes: int) -> list[str]:
    return [f"as_uint({vector}.s{n:x})" for n in range(lanes)]


def _bfloats(vector: str, lanes: int) -> list[str]:
    bits = _plain(vector, lanes)
    return [f"({low} >> 16) | ({high} & 0xffff0000u)" for low, high in zip(bits[::2], bits[1::2], strict=True)]


def _halves(vector: str, lanes: int) -> list[str]:
    return [f"tile_pack_halves({vector}.s{n:x}, {vector}.s{n + 1:x})" for n in range(0, lanes, 2)]


def _doubles(vector: str, lanes: int) -> list[str]:
    return [lane(vector, n, lanes) for n in range(lanes)]


_WORDS: Mapping[DType, Callable[[str, int], list[str]]] = {
    DType.FLOAT32: _plain, DType.BFLOAT16: _bfloats, DType.FLOAT16: _halves, DType.FLOAT64: _doubles,
}  # fmt: skip
"""A vector as operands: a lane each, or two 16-bit lanes as 32 bits, the first in the low half."""
_KINDS: Mapping[DType, str] = {DType.FLOAT32: "f", DType.FLOAT64: "d"}
"""Constraints of registers of sums; factors of float64 are such, too."""
