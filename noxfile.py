"""Every check of the repository, one session each; plain `nox` runs the default ones.

Package tests run against wheels, in environments that hold only what the package declares. Backends are
discovered: a new folder `packages/hal-NAME` joins the conformance matrix by itself.
"""

from __future__ import annotations

from pathlib import Path

import nox

ROOT = Path(__file__).parent
PACKAGES = sorted(p.parent.name for p in ROOT.glob("packages/*/pyproject.toml"))
BACKENDS = ["interp", *sorted(p.removeprefix("hal-") for p in PACKAGES if p.startswith("hal-"))]
WHEELS = ROOT / "build" / "wheels"
EXTRAS = {"hal-opencl": "hal-opencl[pocl]", "tile-hal": "tile-hal[conformance]"}
"""What a package's own tests need beyond its declared needs."""
TEST_TOOLS = ("pytest>=8", "hypothesis>=6.100")

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests", "conformance", "integration"]


def wheelhouse(session: nox.Session) -> None:
    """Build the wheels of all packages whose sources are newer than the wheels."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    stale = [p for p in PACKAGES if _is_stale(p)]
    if not stale:
        return
    session.install("hatchling>=1.24", "pip>=23")
    folders = [str(ROOT / "packages" / p) for p in stale]
    session.run(
        "python", "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(WHEELS), *folders
    )


def _is_stale(package: str) -> bool:
    stem = package.replace("-", "_")
    wheels = list(WHEELS.glob(f"{stem}-*.whl"))
    if not wheels:
        return True
    folder = ROOT / "packages" / package
    sources = [*folder.glob("src/**/*"), folder / "pyproject.toml", folder / "README.md"]
    return max(s.stat().st_mtime for s in sources) > min(w.stat().st_mtime for w in wheels)


def install(session: nox.Session, *requirements: str) -> None:
    """Install from our wheels (always the fresh ones) and the package index."""
    wheelhouse(session)
    ours = [r for r in requirements if r.split("[")[0] in PACKAGES]
    session.install("-q", "--find-links", str(WHEELS), *requirements)
    family = _installed_family(session)
    if ours and not session.virtualenv.is_sandboxed:
        raise RuntimeError("sessions install into their own environments only")
    if family:
        wheels = [str(w) for p in family for w in WHEELS.glob(f"{p.replace('-', '_')}-*.whl")]
        session.install("-q", "--force-reinstall", "--no-deps", *wheels)


def _installed_family(session: nox.Session) -> list[str]:
    listing = session.run("python", "-m", "pip", "list", "--format=freeze", silent=True, log=False) or ""
    names = {line.split("==")[0].split(" @")[0].strip().lower() for line in str(listing).splitlines()}
    return [p for p in PACKAGES if p in names]


@nox.session
@nox.parametrize("package", [nox.param(p, id=p) for p in PACKAGES])
def tests(session: nox.Session, package: str) -> None:
    """One package's own tests, with only its own needs installed."""
    install(session, EXTRAS.get(package, package), *TEST_TOOLS)
    session.run("pytest", "-q", f"packages/{package}/tests", *session.posargs)


@nox.session
@nox.parametrize("backend", [nox.param(b, id=b, tags=[b]) for b in BACKENDS])
def conformance(session: nox.Session, backend: str) -> None:
    """The shared conformance suite on one backend."""
    package = f"hal-{backend}"
    backends = [EXTRAS.get(package, package)] if package in PACKAGES else []
    install(session, "tile-hal[conformance]", *backends)
    report = ROOT / "build" / "conformance" / backend
    report.mkdir(parents=True, exist_ok=True)
    session.run(
        "python", "-m", "tile_hal.conformance", "--backend", backend,
        "--json", str(report / "report.json"), "--markdown", str(report / "support.md"), *session.posargs,
    )  # fmt: skip


def install_everything(session: nox.Session, *more: str) -> None:
    install(session, "tile-runtime", "tile-hal[conformance]", *TEST_TOOLS, *more)


@nox.session
def integration(session: nox.Session) -> None:
    """The whole stack, on every installed backend."""
    install_everything(session, "pillow>=10")
    session.run("pytest", "-q", "integration", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff over everything."""
    session.install("-q", "ruff>=0.6")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Pyright in strict mode over every package."""
    session.install("-q", "pyright[nodejs]", "numpy", "lark", "islpy", "pluggy", "llvmlite", "typer", "rich", "platformdirs", "pytest", "hypothesis", "nox")
    session.run("pyright", "--pythonpath", str(Path(session.bin) / "python"))


@nox.session
def demo(session: nox.Session) -> None:
    """The main job: the seeds' convolution, the tutorial and an image pipeline on the default device."""
    install_everything(session, "pillow>=10", "scikit-image>=0.22")
    session.run("python", "integration/examples/demo.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Ratios against NumPy and PyTorch, interleaved, on a quiet machine."""
    install_everything(session, "torch==2.13.0")
    session.run("python", "integration/bench/run.py", *session.posargs)


@nox.session
def nightly(session: nox.Session) -> None:
    """The long versions: many random programs, long loops that must hold memory flat."""
    install_everything(session, "pillow>=10")
    session.run("pytest", "-q", "integration", "-m", "slow", "--run-slow", *session.posargs)
