"""The `tile` command: one file per command.

Exit codes: 0 nothing to report, 1 findings or an error in what was given, 2 wrong usage or a file that cannot be read.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the `tile` command."""
    from tile_runtime.cli.app import app

    app()
