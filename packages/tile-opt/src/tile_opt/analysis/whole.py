"""Imports that nothing breaks off."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from sys import modules
from threading import Thread
from typing import Any


def loaded(name: str) -> Any:
    """A module of compiled code, imported in a thread of its own, where no Ctrl-C or other signal's exception reaches it.

    What such an exception leaves half made cannot be imported again: islpy then ends the process.
    """
    thread = Thread(target=_imported, args=(name,), name=f"import {name}")
    if name not in modules:
        with suppress(RuntimeError):  # there is no thread to be had
            thread.start()
            thread.join()
    return import_module(name)


def _imported(name: str) -> None:
    with suppress(ImportError):  # which the next attempt tells
        import_module(name)
