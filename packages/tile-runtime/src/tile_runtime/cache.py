"""Compiled code in the disk cache: what it depends on, and who compiles when there is none."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from sys import modules

from tile_hal.disk_cache import disk_cache
from tile_hal.interfaces import Device, Library
from tile_ir.kernels import KernelList
from tile_ir.settings import Settings


def build(device: Device, kernels: KernelList) -> Library:
    """The library of `kernels`: from the disk cache when a sound entry is there, else compiled (and stored)."""
    settings = Settings.from_environment()
    if settings.cache == "off" or not device.capabilities.serializes:
        return device.compiler.build(kernels)
    folder = disk_cache(settings)
    key = cache_key(device, kernels)
    data = folder.read(key)
    if data is not None:
        try:
            return device.compiler.deserialize(kernels, data)
        except Exception as problem:
            folder.discard(key, f"does not fit this device ({problem})")
    library = device.compiler.build(kernels)
    if settings.cache == "on":
        fresh = library.serialize()
        if fresh is not None:
            folder.write(key, fresh)
    return library


def cache_key(device: Device, kernels: KernelList) -> str:
    """SHA-256 of the named parts that compiled code depends on, in hexadecimal."""
    return hashlib.sha256("\n".join(f"{n}={v}" for n, v in key_parts(device, kernels)).encode()).hexdigest()


def key_parts(device: Device, kernels: KernelList) -> list[tuple[str, str]]:
    """The parts by name, so that a miss can be explained."""
    from tile_ir.semtree.printer import print_function

    package = type(device.compiler).__module__.partition(".")[0]
    parts = [
        ("tile-ir", version("tile-ir")),
        ("sources", f"{sources('tile_ir')} {sources(package)}"),
        ("device", device.compiler.fingerprint),
        ("target", kernels.target.to_json()),
    ]
    for k, kernel in enumerate(kernels.kernels):
        text = print_function(kernel.function) if kernel.function is not None else repr(kernel.stripe)
        # Emitted source quotes the Tile statements, so they are part of what an entry was made from.
        text = f"{kernel.groups}\n{kernel.stripe.comment}\n{text}"
        parts.append((f"kernel{k}", hashlib.sha256(text.encode()).hexdigest()))
    return parts


@cache
def sources(package: str) -> str:
    """A stamp of a package's files: who edits one without a new version number must not get old code."""
    digest = hashlib.sha256()
    for root in sorted(_folders(package)):
        for folder, inner, names in os.walk(root):
            inner.sort()
            for name in sorted(n for n in names if n.endswith(".py")):
                path = os.path.join(folder, name)
                with suppress(OSError):
                    status = os.stat(path)
                    digest.update(f"{path[len(root) :]} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _folders(package: str) -> Iterable[str]:
    """Where a package's files are, whether it is imported or not; nowhere for a module that is no package."""
    if package in modules:
        return getattr(modules[package], "__path__", ())
    found = find_spec(package)
    return found.submodule_search_locations or () if found else ()
