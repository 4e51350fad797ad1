"""Python processes beside this one: how they are started, bounded in time, and what is said of their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, PIPE

from tile_ir.frozen import frozen

from tile_hal.errors import Code, device_error

FAREWELL = 2.0
"""Seconds that a process has to end by itself before it is ended."""


@frozen
class Outcome:
    """What became of a process."""

    output: bytes
    """What it wrote to its standard output."""
    errors: bytes
    """What it wrote to its standard error."""
    problem: str
    """How it failed, such as "died of SIGSEGV (Segmentation fault)"; "" when it ended with exit code 0."""


def start(
    module: str,
    *arguments: str,
    pass_fds: Sequence[int] = (),
    apart: bool = False,
    env: Mapping[str, str] | None = None,
    stdin: int = DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
) -> subprocess.Popen[bytes]:
    """``python -m module arguments…`` in a process that imports what this one would import.

    It is a new process, no fork of this one, and does not import the user's main module. `apart` keeps Ctrl-C of the
    terminal from it, `env` is added to the environment. TileDeviceError where no process can be started.
    """
    if not sys.executable or getattr(sys, "frozen", False):  # a frozen program would start itself
        raise device_error(Code.WORKER, "no process can be started: Python does not know its own executable")
    path = os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in sys.path))
    # -P: not the folder that somebody happens to be in.
    command = [sys.executable, "-P", "-m", module, *arguments]
    everything = {**os.environ, **(env or {}), "PYTHONPATH": path}
    try:
        return subprocess.Popen(
            command,
            env=everything,
            pass_fds=tuple(pass_fds),
            start_new_session=apart,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
    except OSError as problem:
        raise device_error(Code.WORKER, f"no process can be started: {problem}") from problem


def run(
    module: str,
    *arguments: str,
    seconds: float,
    data: bytes = b"",
    apart: bool = False,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """The same, with `data` for its standard input, until it ends or `seconds` are over; then it is ended."""
    process = start(module, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, apart=apart, env=env)
    try:
        output, errors = process.communicate(data, seconds)
    except subprocess.TimeoutExpired:
        return Outcome(b"", b"", f"gave no answer for {seconds:g} s")
    finally:
        process.kill()
        process.wait()
    return Outcome(output, errors, ending(process.returncode))


def end(process: subprocess.Popen[bytes], seconds: float = FAREWELL) -> int:
    """The exit code of a process that was told to end; after `seconds` it is ended."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def ending(code: int) -> str:
    """How a process with this exit code ended; "" for 0."""
    if code >= 0:
        return f"ended with exit code {code}" if code else ""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"died of signal {-code}"
    return f"died of {name} ({signal.strsignal(-code)})"
