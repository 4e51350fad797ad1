"""Imports run along the table of needs only, and what is declared is what is imported, and importing loads nothing heavy."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest
from stack import PACKAGES, python

NEEDS: dict[str, set[str]] = {
    "tile_ir": {"numpy", "lark"},
    "tile_lang": {"tile_ir", "numpy"},
    "tile_autodiff": {"tile_lang", "tile_ir"},
    "tile_opt": {"tile_ir", "tile_lang", "islpy", "lark", "numpy"},
    "tile_hal": {"tile_ir", "pluggy", "platformdirs", "numpy"},
    "hal_llvm": {"tile_hal", "tile_ir", "llvmlite", "numpy"},
    "hal_opencl": {"tile_hal", "tile_ir", "pyopencl", "numpy"},
    "tile_runtime": {"tile_ir", "tile_lang", "tile_autodiff", "tile_opt", "tile_hal", "typer", "rich", "platformdirs", "numpy"},
    "tile_onnx": {"tile_runtime", "tile_lang", "tile_opt", "tile_hal", "tile_ir", "onnx", "numpy", "typer"},
    "tile_torch": {"tile_runtime", "tile_hal", "tile_ir", "torch", "numpy"},
    "tile_jax": {"tile_runtime", "tile_lang", "tile_hal", "tile_ir", "llvmlite", "jax", "jaxlib", "numpy", "scipy"},
    "tile_nn": {"tile_runtime", "tile_ir", "safetensors", "rich", "numpy"},
    "tile_dask": {"tile_runtime", "tile_opt", "tile_hal", "tile_ir", "dask", "numpy"},
    "tile_lsp": {"tile_lang", "tile_ir", "pygls", "lsprotocol"},
}  # fmt: skip
"""What each package imports, all of it declared. `hal_llvm` is in tile_runtime's metadata only: no module of it is imported by name."""
METADATA_ONLY = {"tile_runtime": {"hal_llvm"}}
CONFORMANCE = {"pytest", "hypothesis", "tile_lang", "tile_opt", "tile_autodiff"}
"""What tile_hal/conformance may import besides, by the extra of that name."""
OPTIONAL = {"ml_dtypes", "pygments"}
"""What is used where it is there."""
HEAVY = ("llvmlite", "pyopencl", "islpy", "lark", "ml_dtypes", "hypothesis", "torch", "jax", "dask", "pygls")


def module(package: Path) -> str:
    return package.name.replace("-", "_")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """The imports of a file and its calls of functions by their names, wherever they stand."""
    wanted = (ast.Import, ast.ImportFrom, ast.Call)
    return tuple(n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, wanted))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level module of every import in a file, wherever it stands, calls with a name included."""
    for node in nodes(path):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, a.name.split(".")[0]) for a in names)
            case ast.ImportFrom(module=str(name), level=0):
                yield node.lineno, name.split(".")[0]
            case ast.Call(func=ast.Name(id="import_module" | "loaded"), args=[ast.Constant(value=str(name)), *_]):
                yield node.lineno, name.split(".")[0]
            case _:
                pass


def modules(package: Path) -> dict[str, Path]:
    """Its modules by their full names."""
    found = {p.relative_to(package / "src").with_suffix(""): p for p in package.glob("src/**/*.py")}
    return {".".join(p.parts).removesuffix(".__init__"): path for p, path in found.items()}


def used(name: str, path: Path, known: Collection[str]) -> Iterator[str]:
    """The modules of its package that a module imports, wherever that stands, but for the packages around it: they are there before it."""
    for node in nodes(path):
        match node:
            case ast.Import(names=names):
                found = [a.name for a in names]
            case ast.ImportFrom(module=str(home), level=0, names=names):
                found = [f"{home}.{a.name}" if f"{home}.{a.name}" in known else home for a in names]
            case _:
                continue
        yield from (m for m in found if m in known and m != name and not name.startswith(f"{m}."))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_no_modules_import_each_other(package: Path) -> None:
    known = modules(package)
    order = TopologicalSorter({name: set(used(name, path, known)) for name, path in known.items()})
    try:
        order.prepare()
    except CycleError as circle:
        pytest.fail(" <- ".join(circle.args[1]))


def test_every_package_is_in_the_table() -> None:
    assert {module(p) for p in PACKAGES} <= NEEDS.keys()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_imports_follow_the_needs(package: Path) -> None:
    name = module(package)
    allowed = NEEDS[name] | {name} | OPTIONAL | set(sys.stdlib_module_names)
    wrong: list[str] = []
    found: set[str] = set()
    for path in package.glob("src/**/*.py"):
        more = CONFORMANCE if "conformance" in path.parts else set()
        here = list(imported(path))
        found |= {m for _, m in here}
        wrong += [f"{path.relative_to(package)}:{line} imports {m}" for line, m in here if m not in allowed | more]
    assert not wrong
    assert NEEDS[name] <= found, "needed by no module"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_metadata_follows_the_needs(package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {d.split(">")[0].split("=")[0].split("[")[0].strip().replace("-", "_") for d in project["dependencies"]}
    assert declared == NEEDS[module(package)] | METADATA_ONLY.get(module(package), set())


def test_the_suites_extra_holds_all_that_it_imports() -> None:
    """What reads and writes bfloat16 on the host, too, which the suite draws."""
    (package,) = (p for p in PACKAGES if p.name == "tile-hal")
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    extra = {d.split(">")[0].replace("-", "_") for d in project["optional-dependencies"]["conformance"]}
    assert extra == CONFORMANCE | {"tile_ir[bfloat16]"}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_importing_loads_nothing_heavy(package: Path) -> None:
    if find_spec(module(package)) is None:
        pytest.skip("a front end whose library is too large for this session")
    loaded = python(f"import sys, {module(package)}; print(*[m for m in {HEAVY!r} if m in sys.modules])").split()
    assert loaded == []


def test_importing_the_runtime_opens_no_device() -> None:
    assert python("import sys, tile_runtime; print('hal_llvm' in sys.modules)").strip() == "False"
