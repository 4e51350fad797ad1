"""Rows about programs that another process has left in the disk cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rounds import Contestant

SCRIPT = Path(__file__).with_name("started.py")


def restarting(name: str) -> Callable[[bool], Mapping[str, Contestant]]:
    """CPU seconds of a fresh process until a program of `started` is ready."""

    def prepare(small: bool) -> Mapping[str, Contestant]:
        folder = tempfile.TemporaryDirectory(prefix="tile-bench-")
        command = [sys.executable, str(SCRIPT), name, *["small"] * small]

        def run() -> float:
            environment = os.environ | {"TILE_CACHE_DIR": folder.name, "TILE_CACHE": "on"}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr)
            return float(done.stdout.split()[0])

        run()
        return {"tile": run}

    return prepare
