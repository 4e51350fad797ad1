"""Builds the documentation site: python -m pages [--output build/site] [--keep]

Its sources, the pages of docs/ and those that are generated, are put together in build/docs; mkdocs makes build/site of them with
warnings as errors; then every link and anchor of the result is followed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from pages import links
from pages.sources import ROOT, write

QUIET = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
"""The theme announces a competitor's future at every start."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m pages", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", help="folder of the site")
    options = parser.parse_args(arguments)
    start = perf_counter()
    pages = write(ROOT / "build" / "docs")
    _say(f"{len(pages)} pages written", start)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(options.output.resolve())]
    if subprocess.run(command, cwd=ROOT, env=os.environ | QUIET, check=False).returncode:
        return 1
    _say(f"site in {options.output}", start)
    broken = [*links.broken(options.output)]
    print("\n".join(broken), end="\n" if broken else "")
    _say(f"links checked, {len(broken)} broken", start)
    return 1 if broken else 0


def _say(text: str, start: float) -> None:
    print(f"{perf_counter() - start:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
