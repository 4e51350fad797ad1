"""Set up a private environment and run one of the repository's jobs: needs Python 3.11 and nothing else.

    python3 dev.py demo      the main job, on the default CPU device
    python3 dev.py test      every check
    python3 dev.py SESSION   any other nox session, such as bench or "tests(tile-lang)"
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HOME = ROOT / ".venv"


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):
        print("dev.py needs Python 3.11 or newer", file=sys.stderr)
        return 2
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    job, *rest = arguments
    sessions = [] if job == "test" else ["-s", job]
    return subprocess.call([str(nox()), "--noxfile", str(ROOT / "noxfile.py"), *sessions, *rest], cwd=ROOT)


def nox() -> Path:
    """The nox of our own environment, installed on first use."""
    folder = HOME / ("Scripts" if sys.platform == "win32" else "bin")
    executable = folder / ("nox.exe" if sys.platform == "win32" else "nox")
    if not executable.exists():
        print(f"setting up {HOME.name} …", flush=True)
        venv.create(HOME, with_pip=True)
        subprocess.check_call([str(folder / "python"), "-m", "pip", "install", "-q", "nox>=2024.4.15"])
    return executable


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
