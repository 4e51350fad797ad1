"""Code for other processors: each register-file family compiles to assembly whose tiles stay in registers."""

from __future__ import annotations

import re

import pytest
from hal_llvm.binding import Processor, QuickOptions
from hal_llvm.compiler import assembly, machine_for
from hal_llvm.cpu import FAMILIES, family, family_target
from hal_llvm.emit.module import emit_module
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel
from tile_ir.ops import OPS, Signature
from tile_ir.semtree.nodes import (
    Access,
    Assign,
    Binary,
    Block,
    Call,
    Const,
    Expr,
    Fma,
    For,
    Function,
    Let,
    Load,
    Param,
    Splat,
    Statement,
    Store,
    Type,
    Var,
)
from tile_ir.target import Target

I64, F32 = Type(DType.INT64), Type(DType.FLOAT32)
POINTER = Type(DType.FLOAT32, ptr=True)
MATH = [name for name, op in OPS.items() if op.signature is Signature.MATH]
X86 = "x86_64-unknown-linux-gnu"

PROCESSORS = {
    "avx512": Processor(X86, "x86-64-v4", "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma"),
    "avx2": Processor(X86, "x86-64-v3", "+avx2,+fma"),
    "sse2": Processor(X86, "x86-64", "+sse2"),
    "neon": Processor("aarch64-unknown-linux-gnu", "generic", "+neon"),
}
TILES = {"avx512": (14, 2), "avx2": (6, 2), "sse2": (3, 3), "neon": (6, 4)}
MULTIPLY = {"avx512": "vfmadd", "avx2": "vfmadd", "sse2": "mulps", "neon": "fmla"}
VECTOR = {"avx512": "%zmm", "avx2": "%ymm", "sse2": "%xmm", "neon": ".4s"}


def tile_kernel(rows: int, vectors: int, lanes: int, fused: bool) -> Kernel:
    t = Type(DType.FLOAT32, lanes)

    def index(scale: int, offset: int) -> Expr:
        return Binary("add", Binary("mul", Var("k", I64), Const(scale, I64), I64), Const(offset, I64), I64)

    def merge(r: int, v: int) -> Expr:
        a, b, c = Var(f"a{r}", t), Var(f"b{v}", t), Var(f"c{r}_{v}", t)
        return Fma(a, b, c, t) if fused else Binary("add", Binary("mul", a, b, t), c, t)

    cells = [(r, v) for r in range(rows) for v in range(vectors)]
    start = [Let(f"c{r}_{v}", Const(0.0, t), True) for r, v in cells]
    step: list[Statement] = [
        Let(f"b{v}", Load(Var("B", POINTER), index(vectors * lanes, v * lanes), t, align=lanes * 4))
        for v in range(vectors)
    ]
    for r in range(rows):
        step.append(Let(f"a{r}", Splat(Load(Var("A", POINTER), index(rows, r), F32), t)))
        step += [Assign(f"c{r}_{v}", merge(r, v)) for v in range(vectors)]
    end = [
        Store(Var("C", POINTER), Const((r * vectors + v) * lanes, I64), Var(f"c{r}_{v}", t), align=lanes * 4)
        for r, v in cells
    ]
    loop = For("k", Const(0, I64), Const(512, I64), 1, Block(tuple(step)))
    params = tuple(Param(n, POINTER, Access.WRITE if n == "C" else Access.READ, 64, 1 << 16) for n in "CAB")
    return Kernel("tile", None, Function("tile", params, Block((*start, loop, *end))), (1, 1, 1))  # type: ignore[arg-type]


def loops(text: str) -> list[str]:
    """Bodies of the loops that are one basic block."""
    found = re.findall(r"^(\.LBB\w+):((?:(?!^\.LBB).)*?\b[jb]\S*\s+\1)$", text, re.MULTILINE | re.DOTALL)
    return [body for _, body in found]


@pytest.mark.parametrize("name", FAMILIES)
def test_register_tiles_do_not_spill(name: str) -> None:
    processor, settings = PROCESSORS[name], family_target(name).settings
    assert family(processor.triple, processor.features) == name
    rows, vectors = TILES[name]
    assert rows * vectors + vectors + 1 <= settings.registers
    kernel = tile_kernel(rows, vectors, settings.vector_bytes // 4, settings.fma)
    text = assembly(emit_module([kernel], machine_for(processor)).text, processor)
    (body,) = [b for b in loops(text) if MULTIPLY[name] in b]
    assert len(re.findall(MULTIPLY[name], body)) == rows * vectors
    assert VECTOR[name] in body
    assert not re.search(r"\(%rsp\)|\[sp", body)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_math_function_compiles(name: str) -> None:
    processor = PROCESSORS[name]
    lanes = family_target(name).settings.vector_bytes // 4
    kernels = []
    for function in MATH:
        for width in (1, lanes):
            t = Type(DType.FLOAT32, width)
            load = Load(Var("x", POINTER), Const(0, I64), t)
            store = Store(Var("y", POINTER), Const(0, I64), Call(function, (load,) * OPS[function].arity, t))
            params = (Param("y", POINTER, Access.WRITE), Param("x", POINTER))
            kernels.append(Kernel(function, None, Function(function, params, Block((store,))), (1, 1, 1)))  # type: ignore[arg-type]
    text = assembly(emit_module(kernels, machine_for(processor)).text, processor)
    # Only what SSE2 lacks an instruction for may call the C library.
    called = set(re.findall(r"\b(?:callq?|bl)\s+(\w+f)\b", text))
    assert called <= ({"floorf", "ceilf", "roundf", "roundevenf", "truncf"} if name == "sse2" else set())


def test_no_instruction_knows_nothing_of_wide_registers() -> None:
    """Seven bytes, and a zero beside them: `extrq` would do, but between wide registers it takes as long as all else."""
    ir = """define void @seven(ptr %x, ptr %y) {
        %a = load <8 x i8>, ptr %x
        %b = insertelement <8 x i8> %a, i8 0, i32 7
        store <8 x i8> %b, ptr %y
        ret void
    }"""
    assert "extrq" not in assembly(ir, Processor(X86, "znver3", "+sse4a,+avx,+avx2,+fma"))


@pytest.mark.parametrize("name", FAMILIES)
def test_target_documents(name: str) -> None:
    target = family_target(name)
    assert Target.from_json(target.to_json()) == target
    assert target.settings.vec_size * 4 == target.settings.vector_bytes
    assert target.codegen == "semtree"


@pytest.mark.parametrize(("cpu", "again"), [("znver4", True), ("sapphirerapids", False)])
def test_other_users_of_llvm_keep_its_options(monkeypatch: pytest.MonkeyPatch, cpu: str, again: bool) -> None:
    """However often compilations overlap, what they switch off is on again after the last one."""
    options: list[str] = []
    monkeypatch.setattr("hal_llvm.binding.host", lambda: Processor("x86_64", cpu, ""))

    def note(name: str, option: str) -> None:
        options.append(option)

    monkeypatch.setattr("llvmlite.binding.set_option", note)
    with QuickOptions(), QuickOptions():
        pass
    with QuickOptions():
        pass
    quick = ["-disable-lsr=true", *["-post-RA-scheduler=false"] * again]
    usual = ["-disable-lsr=false", *["-post-RA-scheduler=true"] * again]
    assert options == [*quick, *usual] * 2
