"""Errors of a user as messages and exit codes, never as tracebacks."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer
from tile_ir.diagnostics import TileError, TileSettingError

from tile_runtime.cli.colours import painted

OK, FINDINGS, USAGE = 0, 1, 2


class CommandError(Exception):
    """A sentence for the user, and the exit code."""

    def __init__(self, message: str, code: int = FINDINGS) -> None:
        super().__init__(message)
        self.code = code


def reported(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with its errors and warnings printed to stderr, and errors turned into exit codes."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            with _warnings_as_sentences():
                command(*args, **options)
            sys.stdout.flush()
        except TileSettingError as problem:
            raise _failed(str(problem), USAGE) from None
        except TileError as problem:
            raise _failed(str(problem), FINDINGS) from None
        except CommandError as problem:
            raise _failed(f"tile: {problem}", problem.code) from None
        except BrokenPipeError:
            # Whoever read our output has gone; the interpreter's own flush at exit must not complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(OK) from None
        except OSError as problem:
            raise _failed(f"tile: {problem}", USAGE) from None

    return run


@contextmanager
def _warnings_as_sentences() -> Generator[None]:
    """Without the line of ours that gave each."""
    before, warnings.formatwarning = warnings.formatwarning, _sentence
    try:
        yield
    finally:
        warnings.formatwarning = before


def _sentence(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return painted(f"tile: warning: {message}\n", sys.stderr)


def _failed(message: str, code: int) -> typer.Exit:
    print(painted(message, sys.stderr), file=sys.stderr)
    return typer.Exit(code)
