"""The `tile` command: one file per command.

Exit codes: 0 nothing to report, 1 findings or an error in what was given, 2 wrong usage or a file that cannot be read.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stderr, redirect_stdout


def main() -> None:
    """Entry point of the `tile` command; Python has no stream where the shell closed it."""
    from tile_runtime.cli.app import app

    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stdout(sys.stdout or nowhere),
        redirect_stderr(sys.stderr or nowhere),
    ):
        app()
