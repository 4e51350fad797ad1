"""``python -m tile_lang check FILE…`` and ``python -m tile_lang fmt [--check] FILE…``.

Exit codes: 0 nothing to report but warnings, 1 findings (mistakes, or files that fmt --check would change), 2 wrong
usage or a file that cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tile_ir.diagnostics import Diagnostic, Severity, Source, TileError
from tile_ir.text_files import read_standard_input, read_text

OK, FINDINGS, USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (argparse itself exits with 2)."""
    args = _arguments().parse_args(argv)
    command: Callable[[Source, argparse.Namespace], int] = args.command
    return max((_on_file(command, name, args) for name in args.files), default=OK)


def _arguments() -> argparse.ArgumentParser:
    epilog = "exit codes: 0 nothing to report, 1 findings, 2 wrong usage or unreadable file"
    top = argparse.ArgumentParser("python -m tile_lang", description="Check and format Tile files.", epilog=epilog)
    commands = top.add_subparsers(required=True, metavar="check|fmt")
    check = commands.add_parser(
        "check",
        help="report mistakes that hold for all shapes, and warn of what is probably not meant",
        epilog=f"example: python -m tile_lang check conv.tile; {epilog}",
    )
    check.add_argument("--json", action="store_true", help="one JSON object a finding, one a line")
    check.set_defaults(command=_check)
    fmt = commands.add_parser(
        "fmt", help="rewrite files in the canonical layout", epilog=f"example: python -m tile_lang fmt *.tile; {epilog}"
    )
    fmt.add_argument("--check", action="store_true", help="only name the files that would change")
    fmt.set_defaults(command=_fmt, json=False)
    for command in (check, fmt):
        command.add_argument("files", nargs="+", metavar="FILE", help="Tile file; '-' is standard input")
    return top


def _on_file(command: Callable[[Source, argparse.Namespace], int], name: str, args: argparse.Namespace) -> int:
    try:
        text = read_standard_input() if name == "-" else read_text(name)
    except (OSError, UnicodeDecodeError) as error:
        print(f"{name}: cannot be read: {error}", file=sys.stderr)
        return USAGE
    try:
        return command(Source(text, "<stdin>" if name == "-" else name), args)
    except TileError as error:
        for diagnostic in error.diagnostics:
            print(_as_json(diagnostic) if args.json else diagnostic.render())
        return FINDINGS
    except OSError as error:
        print(f"{name}: cannot be written: {error}", file=sys.stderr)
        return USAGE


def _as_json(d: Diagnostic) -> str:
    place = {"file": d.span.source.name, "line": d.span.line, "column": d.span.column} if d.span else {}
    return json.dumps({**place, "code": d.code, "message": d.message, "hint": d.hint, "severity": d.severity.value})


def _check(source: Source, args: argparse.Namespace) -> int:
    from tile_lang.checking import check
    from tile_lang.lint import lint
    from tile_lang.parser import parse

    function = parse(source)
    found = [*check(function), *lint(function)]
    for diagnostic in found:
        print(_as_json(diagnostic) if args.json else diagnostic.render())
    return FINDINGS if any(d.severity is Severity.ERROR for d in found) else OK


def _fmt(source: Source, args: argparse.Namespace) -> int:
    from tile_lang.formatter import format_source

    text = format_source(source)
    if source.name == "<stdin>" and not args.check:
        print(text, end="")
        return OK
    if text == source.text:
        return OK
    if args.check:
        print(f"{source.name}: would be reformatted")
        return FINDINGS
    Path(source.name).write_text(text, encoding="utf-8")
    return OK


if __name__ == "__main__":
    sys.exit(main())
