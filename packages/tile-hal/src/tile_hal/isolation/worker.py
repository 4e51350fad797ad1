"""The other side of a worker: its process, what it was told, and its end."""

from __future__ import annotations

import atexit
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from tile_ir import forking
from tile_ir.diagnostics import TileDeviceError
from tile_ir.settings import Settings

from tile_hal.errors import Code, device_error
from tile_hal.host_queue import HostEvent
from tile_hal.interfaces import Result
from tile_hal.isolation import process
from tile_hal.isolation.problems import reported
from tile_hal.isolation.wire import Blob, Channel, Ended, Message, connected

START = 60.0
"""Seconds that a worker may take at least until it is ready."""
GRACE = 1.0
"""Seconds that a worker has for what it does when a wait for it is interrupted."""
_SHOWN = 3
"""Commands that a message names."""


class Call(HostEvent):
    """A command to a worker, answered later."""

    __slots__ = ("answer", "kept", "number", "what", "worker")

    def __init__(self, what: str, kept: object = None) -> None:
        super().__init__()
        self.what = what
        """What the worker does, for people: "running kernel 'k'"."""
        self.kept = kept
        """What must live until the answer is there."""
        self.number = 0
        self.worker: Worker | None = None
        """Who has it; None before it is sent."""
        self.answer: Message | None = None

    def wait(self) -> Result:
        try:
            return super().wait()
        except BaseException:
            if not self.done and self.worker is not None:
                self.worker.hurry()
            raise

    def answered(self) -> Message:
        """The answer, once it is there; raises the error that came instead."""
        self.wait()
        assert self.answer is not None
        return self.answer

    def take(self, message: Message) -> None:
        self.answer = message
        error = message.table.get("error")
        if error is None:
            self.set(message.table.get("seconds"))
        else:
            self._finish(Result(), reported(error))
        self.kept = None

    def lose(self, error: BaseException) -> None:
        self.fail(error)
        self.kept = None


class Worker:
    """A process that holds a driver. It lives until it dies, or nobody refers to it any more."""

    def __init__(self, name: str, **environment: str) -> None:
        """`name` is whose worker it is, for people. TileDeviceError where no process can be started."""
        self.name = name
        self.end: str = ""
        """How it ended; "" while it lives."""
        self._numbers = count(1)
        """Of what has a number here: commands, buffers, libraries, kernels."""
        self.alignment = 0
        """Of shared memory that its device uses in place, in bytes; 0 where it uses none."""
        self.segments = set[int]()
        """Of shared memory, that it has."""
        limit = Settings.from_environment().isolate_seconds
        self.limit = max(limit, START) if limit else 0.0
        """Seconds without progress until it is ended; 0 for as long as it takes."""
        self._pending: dict[int, Call] = {}
        """Added to and taken from in single steps, without a lock: who listens must not wait for a thread that a signal's
        handler has interrupted, where the handler waits for an answer."""
        self._progress = time.monotonic()
        """When it was last seen to be at work, or had nothing to do."""
        self._hurry: float | None = None
        """When it is ended because somebody waits no longer."""
        self._verdict = ""
        self._channel, self._process = _started(environment)
        self._forked = False
        self._over = threading.Event()
        threading.Thread(target=self._listen, name="tile-isolation", daemon=True).start()
        _workers.add(self)

    @property
    def alive(self) -> bool:
        return not self.end

    def ready(self) -> None:
        """It has started; from now on the time of the settings is its limit."""
        self.limit = Settings.from_environment().isolate_seconds

    def number(self) -> int:
        """One that nothing else has here."""
        return next(self._numbers)

    def send(self, call: Call, table: Mapping[str, Any], blobs: Sequence[Blob] = (), fds: Sequence[int] = ()) -> None:
        """Tell it something; the call is done when it has answered, or died."""
        call.number = self.number()
        if not self._pending:
            self._progress = time.monotonic()
        self._pending[call.number] = call
        try:
            self._channel.send({"id": call.number, **table}, blobs, fds)
        except Ended:
            pass  # whoever listens finds out how it ended
        except BaseException:
            self.stop("was ended because sending to it was interrupted")
            raise
        call.worker = self  # not before: what depends on it, and is sent by another thread, must not come first
        if self.end:
            self._lose_all()

    def call(self, what: str, table: Mapping[str, Any], blobs: Sequence[Blob] = (), fds: Sequence[int] = ()) -> Message:
        """Tell it something and wait for the answer; raises the error that came instead."""
        call = Call(what)
        self.send(call, table, blobs, fds)
        return call.answered()

    def hurry(self) -> None:
        """Somebody who waited for it waits no longer: it is ended unless what it does is over soon."""
        self._hurry = time.monotonic() + GRACE

    def stop(self, verdict: str) -> None:
        """End the process; `verdict` is what is said of it."""
        self._verdict = self._verdict or verdict
        self._process.kill()

    def lost(self, what: str = "") -> TileDeviceError:
        """The error of what needs this worker and cannot have it."""
        message = f"the worker process of {self.name} {self.end}"
        hint = "the next call starts another one; what was in the memory of the old one is lost"
        return device_error(Code.WORKER, f"{message}{what}", hint)

    def waiting(self) -> list[Call]:
        """What it has not answered yet."""
        return list(self._pending.values())

    # --- the thread that listens ---

    def _listen(self) -> None:
        poller = select.poll()
        poller.register(self._channel.connection, select.POLLIN)
        try:
            while True:
                while not poller.poll(100 if self._pending else 1000):
                    self._check_time()
                self._take(self._channel.receive())
        except Ended:
            pass
        except Exception as problem:  # whatever a driver writes to a connection that is not its own
            self.stop(f"sent what is no message ({type(problem).__name__}: {problem}) and was ended")
        if not self._forked:
            self._bury()

    def _take(self, message: Message) -> None:
        call = self._pending.pop(message.table["id"], None)
        self._progress = time.monotonic()
        if not self._pending:
            self._hurry = None
        if call is not None:
            call.take(message)

    def _check_time(self) -> None:
        now = time.monotonic()
        if not self._pending:
            self._hurry = None
        elif self._hurry is not None and now > self._hurry:
            self.stop("was interrupted and ended")
        elif self.limit and now - self._progress > self.limit:
            self.stop(f"gave no answer for {self.limit:g} s and was ended")

    def _bury(self) -> None:
        """It is gone, or going: find out how, and tell those that wait."""
        code = process.end(self._process)
        self.end = (self._verdict or process.ending(code) or "ended") + self._doing()
        self._lose_all()
        self._channel.forget()
        self._over.set()

    def _doing(self) -> str:
        calls = [c.what for c in self.waiting()]
        if not calls:
            return ""
        names = list(dict.fromkeys(calls))
        more = f" and {len(calls) - _SHOWN} more" if len(calls) > _SHOWN else ""
        return f" while {', '.join(names[:_SHOWN])}{more}"

    def _lose_all(self) -> None:
        with suppress(KeyError):  # the last is gone
            while True:
                self._pending.popitem()[1].lose(self.lost())

    # --- the ends of processes ---

    def close(self) -> None:
        """End it and wait until it has ended."""
        if self.alive and not self._forked:
            self._verdict = self._verdict or "was told to end"
            self._channel.close()
            self._over.wait(2 * process.FAREWELL)

    def forked(self) -> None:
        """In a forked child: the process belongs to the parent, and nobody listens here."""
        self._forked = True
        self.end = "belongs to the process that this one was forked from"
        self._channel.forget()
        self._process.returncode = 0  # not this process's to wait for
        for call in self._pending.values():
            call.lose(device_error(Code.EXECUTION, "the process forked while this work was pending"))
        self._pending.clear()


def _started(environment: Mapping[str, str]) -> tuple[Channel, Any]:
    if not hasattr(socket, "send_fds"):
        raise device_error(Code.WORKER, "devices run in worker processes only where there are Unix sockets")
    mine, its = connected()
    with its:
        env = {"TILE_ISOLATE": "", **environment}
        started = process.start(
            "tile_hal.isolation.server", str(its.fileno()), pass_fds=(its.fileno(),), apart=True, env=env
        )
    return Channel(mine), started


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


def _all(action: Callable[[Worker], None]) -> None:
    for worker in list(_workers):
        action(worker)


forking.at_fork(in_child=lambda: (_all(Worker.forked), _workers.clear()))
atexit.register(_all, Worker.close)
