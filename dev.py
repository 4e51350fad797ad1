"""Set up a private environment and run one of the repository's jobs: needs Python 3.11 and nothing else.

python3 dev.py install [PACKAGE...]   tile-runtime and the CPU device, or other packages, into the Python that runs this
python3 dev.py demo      the main job, on the default CPU device
python3 dev.py test      every check
python3 dev.py docs      the documentation, as a site in build/site
python3 dev.py SESSION   any other nox session, such as bench or "tests(tile-lang)"
python3 dev.py --list    all sessions
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent
HOME = ROOT / ".venv"
TOOLS = ("nox>=2024.4.15", "hatchling>=1.24")
OURS = ("packages", "integration/plugins")
"""Folders of packages."""
AT_ONCE = 2
"""Sessions of `test` that run side by side."""
SESSION = 30 * 60.0
"""Seconds after which a session of `test` is ended: the longest takes a fifth of them, on a busy machine half."""
WHOLE = 75 * 60.0
"""Seconds after which all of them are: what hangs says so before whoever waits for 90 minutes gives up."""
FAREWELL = 5.0
"""Seconds in which processes that are being ended say where they are."""
LATE = 124
"""The exit code of what was ended, as of ``timeout``."""
_running: set[subprocess.Popen[bytes]] = set()
_over = threading.Event()
"""What starts from now on ends at once: the run was interrupted."""


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036
        print("dev.py needs Python 3.11 or newer", file=sys.stderr)
        return 2
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    job, *rest = arguments
    if job == "test":
        return _test(rest)
    if job == "install":
        return _install(rest or ["tile-runtime"])
    selection = ["--list"] if job == "--list" else ["-s", job]
    return _nox(*selection, *(["--", *rest] if rest else [])).returncode


def _install(requested: list[str]) -> int:
    """Wheels of the packages and of those of ours that they need, installed by path: no name of ours is looked up anywhere."""
    folders = {p.parent.name: p.parent for where in OURS for p in sorted(ROOT.glob(f"{where}/*/pyproject.toml"))}
    unknown = [r for r in requested if _name(r) not in folders]
    if unknown:
        print(f"there is no package {', '.join(unknown)}; packages are {', '.join(folders)}", file=sys.stderr)
        return 2
    family = sorted({name for r in requested for name in _family(r, folders)})
    extras = {_name(r): r[len(_name(r)) :] for r in requested}
    _python()
    with tempfile.TemporaryDirectory() as wheels, ThreadPoolExecutor(AT_ONCE) as pool:
        built = pool.map(lambda name: _built(folders[name], Path(wheels) / name), family)
        paths = [f"{wheel}{extras.get(name, '')}" for name, wheel in zip(family, built, strict=True)]
        command = [sys.executable, "-m", "pip", "install", "--force-reinstall", "--no-deps", *paths]
        if status := subprocess.run([*command, "-q"], check=False).returncode:
            return status
        status = subprocess.run([sys.executable, "-m", "pip", "install", "-q", *paths], check=False).returncode
    print("failed" if status else f"installed {', '.join(family)}")
    return status


def _built(folder: Path, into: Path) -> Path:
    """The wheel of a package."""
    print(f"building {folder.name} …", flush=True)
    build = [str(_python()), "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    done = subprocess.run(build, cwd=folder, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{folder.name} cannot be built:\n{done.stdout}{done.stderr}")
    return next(into.glob("*.whl"))


def _name(requirement: str) -> str:
    """``tile-runtime`` of ``tile-runtime[opencl]>=0.1``."""
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _family(requirement: str, folders: dict[str, Path]) -> set[str]:
    """The package and those of ours that it needs, for its extras too."""
    name = _name(requirement)
    if name not in folders:
        return set()
    project = tomllib.loads((folders[name] / "pyproject.toml").read_text("utf-8"))["project"]
    options = project.get("optional-dependencies", {})
    extras = re.search(r"\[(.*)\]", requirement)
    needs = [
        *project.get("dependencies", ()),
        *(n for e in (extras[1].split(",") if extras else ()) for n in options.get(e.strip(), ())),
    ]
    return {name}.union(*(_family(need, folders) for need in needs))


def _test(rest: list[str]) -> int:
    """Every default session, two at a time, each in one process: workers of pytest would cost a tenth more.

    What a session says is printed when it ends, or is ended: none may keep the others from being reported.
    """
    end = time.monotonic() + WHOLE
    if status := _limited(["-s", "prepare"], end).returncode:
        return status
    listed = _nox("--list", "--json", stdout=subprocess.PIPE).stdout
    names = [s["session"] for s in json.loads(listed)]
    failed = [name for name, status in _side_by_side(names, rest, end) if status]
    verdict = "failed: " + ", ".join(failed) if failed else f"{len(names)} sessions passed"
    print(f"{verdict}; {os.times().children_user / 60:.1f} CPU minutes")
    return 1 if failed else 0


def _side_by_side(names: list[str], rest: list[str], end: float) -> Iterator[tuple[str, int]]:
    """Names of sessions and their exit codes, the sessions that take long first: they are listed last."""
    pool = ThreadPoolExecutor(AT_ONCE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        running = {pool.submit(_session, name, rest, end): name for name in reversed(names)}
        for done in as_completed(running):
            print(done.result().stdout, flush=True)
            yield running[done], done.result().returncode
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        _over.set()
        for process in [*_running]:  # interrupted
            _end(process)


def _session(name: str, rest: list[str], end: float) -> subprocess.CompletedProcess[str]:
    print(f"{name} …", flush=True)
    # Idle threads of a library spin, which costs the other session.
    alone = {"SIDE_BY_SIDE": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # Not a pipe: a process that a test leaves behind would hold it open, and with it this run.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        done = _limited(["-s", name, *(["--", *rest] if rest else [])], end, said, alone)
        said.seek(0)
        done.stdout = said.read()
    return done


def _limited(
    arguments: list[str], end: float, said: IO[str] | None = None, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A run of nox and all that it starts, which is over within `SESSION` seconds, and before `end`."""
    command, environment = _command(*arguments), _environment() | (variables or {})
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said, start_new_session=True)
    _running.add(process)
    late = None
    try:
        process.wait(0.0 if _over.is_set() else max(0.0, min(SESSION, end - time.monotonic())))
    except subprocess.TimeoutExpired:
        late = f"\n{' '.join(arguments)}: not through in time, and ended\n"
    finally:
        _end(process)
        _running.discard(process)
    if late:
        print(late, file=said, flush=True)
    return subprocess.CompletedProcess(command, LATE if late else process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it left behind; what still runs first says where it is, as pytest does when aborted."""
    if process.poll() is None:
        _send(process, signal.SIGABRT)
        time.sleep(FAREWELL)
    _send(process, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    process.wait()


def _send(process: subprocess.Popen[bytes], what: int) -> None:
    """A signal to a process and to those that it started."""
    with suppress(OSError):  # there are none
        if sys.platform == "win32":
            process.terminate()
        else:
            os.killpg(process.pid, what)


def _nox(*arguments: str, stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(*arguments), cwd=ROOT, env=_environment(), stdout=stdout, text=True, check=False)


def _command(*arguments: str) -> list[str]:
    return [str(_python()), "-m", "nox", "--noxfile", str(ROOT / "noxfile.py"), *arguments]


def _python() -> Path:
    """The interpreter of our own environment, which is made on first use."""
    python = HOME / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    ready = HOME / "ready"
    if not ready.exists():
        print("setting up …", flush=True)
        _set_up(python)
        ready.touch()
    return python


def _set_up(python: Path) -> None:
    """An environment with the tools that every job needs. What fails is made anew next time."""
    try:
        venv.create(HOME, with_pip=True, clear=True)
    except (subprocess.CalledProcessError, OSError) as error:
        raise SystemExit(f"no environment at {HOME}: {error} (Debian and Ubuntu: apt install python3-venv)") from None
    install = [str(python), "-m", "pip", "install", "-q", *TOOLS]
    if subprocess.run(install, env=_environment(), check=False).returncode:
        raise SystemExit(f"{' and '.join(TOOLS)} cannot be installed: what pip says stands above")


def _environment() -> dict[str, str]:
    """Ours, without a foreign environment's traces and pip's notices; what is imported is compiled once."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    return {k: v for k, v in os.environ.items() if k not in hidden} | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
