"""Scripts, each in a process of its own that is forked from one where Tile is imported and has run: that takes a second."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import IO

SAID = "said.txt"
"""What a script prints, in its folder."""


class Forge:
    """A process that forks others."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, script: Path) -> str | None:
        """What a script that fails prints; None for one that does not."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None and answered is not None
        print(script, file=asked, flush=True)
        failed = answered.readline() != "0\n"
        return (script.parent / SAID).read_text("utf-8") if failed else None

    def close(self) -> None:
        self._process.communicate()


def _serve(asked: IO[str]) -> None:
    answered = os.fdopen(os.dup(1), "w")
    for line in asked:
        script = Path(line.rstrip("\n"))
        if not hasattr(os, "fork"):
            print(_started(script), file=answered, flush=True)
        elif child := os.fork():
            print(os.waitpid(child, 0)[1], file=answered, flush=True)
        else:
            _become(script)
            return


def _started(script: Path) -> int:
    """What a script exits with in a fresh process, where systems do not fork."""
    with open(script.parent / SAID, "wb") as said:
        command = [sys.executable, str(script)]
        return subprocess.run(command, cwd=script.parent, stdout=said, stderr=said, check=False).returncode


def _become(script: Path) -> None:
    """This process, which is forked, as one that was started with a script in its folder."""
    os.chdir(script.parent)
    with open(SAID, "wb") as said, open(os.devnull, "rb") as nothing:
        for stream, number in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(stream.fileno(), number)
    sys.argv = [str(script)]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    import numpy as np
    import tile_runtime as tile

    for module in ("tile_autodiff", "tile_nn"):
        import_module(module)
    tile.Function("function (A[N]) -> (B) { B = A + 1.0; }")(np.zeros(5, np.float32))
    _serve(sys.stdin)
