"""Set up a private environment and run one of the repository's jobs: needs Python 3.11 and nothing else.

python3 dev.py demo      the main job, on the default CPU device
python3 dev.py test      every check
python3 dev.py SESSION   any other nox session, such as bench or "tests(tile-lang)"
python3 dev.py --list    all sessions
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HOME = ROOT / ".venv"
TOOLS = ("nox>=2024.4.15", "hatchling>=1.24")


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036
        print("dev.py needs Python 3.11 or newer", file=sys.stderr)
        return 2
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    job, *rest = arguments
    selection = {"test": [], "--list": ["--list"]}.get(job, ["-s", job])
    command = [str(_python()), "-m", "nox", "--noxfile", str(ROOT / "noxfile.py"), *selection]
    return subprocess.call([*command, *(["--", *rest] if rest else [])], cwd=ROOT, env=_environment())


def _python() -> Path:
    """The interpreter of our own environment, which is made on first use."""
    python = HOME / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    ready = HOME / "ready"
    if not ready.exists():
        print("setting up …", flush=True)
        venv.create(HOME, with_pip=True, clear=True)
        subprocess.check_call([str(python), "-m", "pip", "install", "-q", *TOOLS], env=_environment())
        ready.touch()
    return python


def _environment() -> dict[str, str]:
    """Ours, without a foreign environment's traces and pip's notices; what is imported is compiled once."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    return {k: v for k, v in os.environ.items() if k not in hidden} | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
