"""Compiled code in the disk cache: what it depends on, and who compiles when there is none."""

from __future__ import annotations

import hashlib
from importlib.metadata import version

from tile_hal.disk_cache import disk_cache, sources
from tile_hal.interfaces import Device, Library
from tile_ir.kernels import KernelList
from tile_ir.settings import Settings

from tile_runtime.programs.compiling import compiled


def build(device: Device, kernels: KernelList) -> Library:
    """The library of `kernels`: from the disk cache when a sound entry is there, else compiled (and stored)."""
    settings = Settings.from_environment()
    if settings.cache == "off" or not device.capabilities.serializes:
        return compiled(device, kernels)[0]
    folder = disk_cache(settings)
    key = cache_key(device, kernels)
    data = folder.read(key)
    if data is not None:
        try:
            return device.compiler.deserialize(kernels, data)
        except Exception as problem:
            folder.discard(key, f"does not fit this device ({problem})")
    library, fresh = compiled(device, kernels)
    if settings.cache == "on":
        fresh = fresh or library.serialize()
        if fresh is not None:
            folder.write(key, fresh)
    return library


def cache_key(device: Device, kernels: KernelList) -> str:
    """SHA-256 of the named parts that compiled code depends on, in hexadecimal."""
    return hashlib.sha256("\n".join(f"{n}={v}" for n, v in key_parts(device, kernels)).encode()).hexdigest()


def key_parts(device: Device, kernels: KernelList) -> list[tuple[str, str]]:
    """The parts by name, so that a miss can be explained."""
    from tile_ir.semtree.printer import print_function

    parts = [
        ("tile-ir", version("tile-ir")),
        ("sources", f"{sources('tile_ir')} {sources(device.compiler.package)}"),
        ("device", device.compiler.fingerprint),
        ("target", kernels.target.to_json()),
    ]
    for k, kernel in enumerate(kernels.kernels):
        text = print_function(kernel.function) if kernel.function is not None else repr(kernel.stripe)
        # Emitted source quotes the Tile statements, so they are part of what an entry was made from.
        text = f"{kernel.groups}\n{kernel.stripe.comment}\n{text}"
        parts.append((f"kernel{k}", hashlib.sha256(text.encode()).hexdigest()))
    return parts
