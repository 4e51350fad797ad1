"""The pass registry, the pipeline around passes, and the compiler's stages."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from lowering_support import execute, wrap
from tile_ir.diagnostics import TileDeviceError, TileSettingError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Elementwise, Literal, Param, TensorType
from tile_ir.program.nodes import Program as TileProgram
from tile_ir.stripe.nodes import Block, Program
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_ir.target import PassConfig, Target
from tile_opt import passes as registry
from tile_opt.blocks.tree import kernels_of
from tile_opt.compiler import compile
from tile_opt.passes import PASSES, KernelPass, Pass, create, pass_class
from tile_opt.pipeline import PassError, optimize

TEXT = wrap(
    "inputs A\noutputs B, C",
    {"in A": "f32(4:1)", "out B": "f32(4:1)", "out C": "f32(4:1)"},
    """
block [] ( in A[0] f32(4:1) out B[0] f32(4:1) ) {
  block [i:4] ( in A[i] f32(1:1) out B[i] f32(1:1) ) { $a = load(A) $b = neg($a) B = store($b) } }
block [] ( in A[0] f32(4:1) out C[0] f32(4:1) ) {
  block [i:4] ( in A[i] f32(1:1) out C[i] f32(1:1) ) { $a = load(A) C = store($a) } }
""",
)
TARGET = Target("plain")


@dataclass(frozen=True)
class Rename(KernelPass):
    prefix: str = "k"
    sizes: tuple[int, ...] = ()

    def rewrite(self, kernel: Block, target: Target) -> Block:
        return replace(kernel, name=self.prefix + kernel.name)


@dataclass(frozen=True)
class Break(Pass):
    def apply(self, program: Program, target: Target) -> Program:
        return replace(program, outputs=("nowhere",))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PASSES, "rename", f"{__name__}:Rename")
    monkeypatch.setattr(registry, "import_module", lambda name: sys.modules.get(name) or sys.modules[__name__])


@pytest.mark.parametrize("name", sorted(PASSES))
def test_registered_passes_exist_and_can_be_made_by_name(name: str) -> None:
    made = create(PassConfig(name))
    assert made.name == name
    assert made == create(PassConfig(name)) and hash(made) == hash(create(PassConfig(name)))


def test_unknown_pass_has_a_hint() -> None:
    with pytest.raises(TileDeviceError, match="did you mean 'autotile'"):
        pass_class("autotiel")


@pytest.mark.usefixtures("known")
def test_unknown_option_names_pass_and_option() -> None:
    with pytest.raises(TileDeviceError, match=r"'rename' has no option 'prefx'(.|\n)*did you mean 'prefix'"):
        create(PassConfig("rename", options={"prefx": 1}))


@pytest.mark.parametrize("value", [None, "8", [], True, 0.5])
def test_an_option_of_another_type_is_named(value: object) -> None:
    with pytest.raises(TileDeviceError, match=r"'fuse' does not take these options: min_shared is .*, not of type int"):
        create(PassConfig("fuse", options={"min_shared": value}))


@pytest.mark.usefixtures("known")
def test_options_come_from_json() -> None:
    document = json.dumps({"name": "t", "passes": [{"name": "first", "rename": {"prefix": "p_", "sizes": [1, 2]}}]})
    target = Target.from_json(document)
    assert create(target.passes[0]) == Rename("p_", (1, 2))
    seen: list[tuple[int, str]] = []
    result = optimize(parse_program(TEXT), target, callback=lambda n, label, _: seen.append((n, label)), verify=True)
    assert seen == [(0, "initial"), (1, "first")]
    assert [k.name for k in kernels_of(result) if isinstance(k, Block)] == ["p_", "p_"]


def test_a_bad_list_fails_before_any_pass_runs() -> None:
    seen: list[str] = []
    with pytest.raises(TileDeviceError):
        optimize(parse_program(TEXT), TARGET, passes=[Rename(), PassConfig("nonsense")],
                 callback=lambda _, label, __: seen.append(label))  # fmt: skip
    assert not seen


def test_verification_names_the_pass() -> None:
    program = parse_program(TEXT)
    assert optimize(program, TARGET, passes=[Break()], verify=False).outputs == ("nowhere",)
    with pytest.raises(PassError, match=r"pass 2 \(break\) is not valid Stripe"):
        optimize(program, TARGET, passes=[Rename(), Break()], verify=True)


def test_a_dump_folder_that_cannot_be_written_is_an_error_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILE_DUMP_IR", str(tmp_path / "file"))
    with pytest.raises(TileSettingError, match="TILE_DUMP_IR must be a folder"):
        optimize(parse_program(TEXT), TARGET, passes=[Rename()])


def test_dumps_one_numbered_file_per_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_DUMP_IR", str(tmp_path / "ir"))
    result = optimize(parse_program(TEXT), TARGET, passes=[Rename()])
    files = sorted(p.name for p in (tmp_path / "ir").iterdir())
    assert files == ["00_initial.stripe", "01_rename.stripe"]
    assert (tmp_path / "ir" / files[1]).read_text(encoding="utf-8") == print_program(result)


def test_equal_kernels_are_rewritten_once() -> None:
    calls: list[str] = []

    @dataclass(frozen=True)
    class Count(KernelPass):
        def rewrite(self, kernel: Block, target: Target) -> Block:
            calls.append(kernel.name)
            return kernel

    program = parse_program(TEXT)
    assert optimize(program, TARGET, passes=[Count()]) is program
    assert len(calls) == 2


def test_compile_gives_every_stage() -> None:
    t = TensorType(DType.FLOAT32, (4,))
    program = TileProgram(
        "p", (Param("A", t),), (Elementwise("B", t, "add", ("A", Literal(1.0, DType.FLOAT32))),), (("R", "B"),)
    )
    compiled = compile(program, TARGET, passes=[Rename("x_")], verify=True)
    assert list(compiled.timings) == ["rewrite", "stripe", "pass:rename", "lower", "legalise", "simplify", "verify"]
    assert [k.name for k in kernels_of(compiled.stripe_initial) if isinstance(k, Block)] != [
        k.name for k in kernels_of(compiled.stripe) if isinstance(k, Block)
    ]
    (out,) = execute(compiled.kernels, {"A": [1, 2, 3, 4]}).values()
    assert out.tolist() == [2, 3, 4, 5]


def test_a_target_that_cannot_reinterpret_bits_refuses_programs_that_do() -> None:
    x, y = TensorType(DType.FLOAT32, (4,)), TensorType(DType.UINT32, (4,))
    program = TileProgram("p", (Param("A", x),), (Elementwise("B", y, "bitcast", ("A",)),), (("R", "B"),))
    with pytest.raises(TileDeviceError, match="target plain cannot reinterpret bits, which 'B' needs"):
        compile(program, TARGET)
    assert compile(program, replace(TARGET, nodes=frozenset({"Bitcast"}))).kernels.kernels


def test_importing_the_compiler_loads_neither_islpy_nor_lark() -> None:
    code = (
        "import sys, tile_opt.compiler, tile_opt.pipeline, tile_opt.lowering, tile_opt.semtree\n"
        "print([m for m in ('islpy', 'lark', 'llvmlite') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
