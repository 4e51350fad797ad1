"""The `tile-lsp` command, and `tile lsp`: a server on standard input and output, or on a port."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tile_lsp import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one editor until it says goodbye; returns the exit code (argparse itself exits with 2)."""
    given = _arguments().parse_args(argv)
    from tile_lsp.server import Server

    if given.tcp is None:
        Server().start_io()
    else:
        host, port = given.tcp
        Server().start_tcp(host, port)
    return 0


def _arguments() -> argparse.ArgumentParser:
    epilog = (
        "example: an editor starts 'tile-lsp' for files of type tile; the package's README has the settings of several"
    )
    parser = argparse.ArgumentParser("tile-lsp", description="A language server for Tile.", epilog=epilog)
    parser.add_argument("--version", action="version", version=f"tile-lsp {__version__}")
    parser.add_argument("--stdio", action="store_true", help="use standard input and output, as without any option")
    parser.add_argument("--tcp", metavar="HOST:PORT", type=_address, help="wait for one editor there instead")
    return parser


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 127.0.0.1:2087")
    return host, int(port)
