"""The disk cache of compiled code: one file per key, verified on read, bounded in size, never unpickled.

An entry is a header (magic, key, payload length, SHA-256) and what `Library.serialize` gave. Whoever can
write the folder can make this process run code, so it is private to the user.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tile_hal.interfaces import Device, Library
from tile_ir.kernels import KernelList
from tile_ir.settings import Settings

MAGIC = b"TILECACHE1\n"
MAX_BYTES = 1 << 30
_KEY_BYTES = 64
_HEADER = len(MAGIC) + _KEY_BYTES + 8 + 32


def build(device: Device, kernels: KernelList) -> Library:
    """The library of `kernels`: from the disk cache when a sound entry is there, else compiled (and stored)."""
    settings = Settings.from_environment()
    if settings.cache == "off" or not device.capabilities.serializes:
        return device.compiler.build(kernels)
    cache = DiskCache(settings.cache_dir or default_folder())
    key = cache_key(device, kernels)
    data = cache.read(key)
    if data is not None:
        try:
            return device.compiler.deserialize(kernels, data)
        except ValueError as problem:
            cache.discard(key, f"does not fit this device: {problem}")
    library = device.compiler.build(kernels)
    if settings.cache == "on":
        fresh = library.serialize()
        if fresh is not None:
            cache.write(key, fresh)
    return library


def default_folder() -> Path:
    """The platform's cache folder for this user."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("tile", appauthor=False)) / "kernels"


def cache_key(device: Device, kernels: KernelList) -> str:
    """SHA-256 of the named parts that compiled code depends on, in hexadecimal."""
    return hashlib.sha256("\n".join(f"{n}={v}" for n, v in key_parts(device, kernels)).encode()).hexdigest()


def key_parts(device: Device, kernels: KernelList) -> list[tuple[str, str]]:
    """The parts by name, so that a miss can be explained."""
    from tile_ir.semtree.printer import print_function

    parts = [("device", device.compiler.fingerprint), ("target", kernels.target.to_json())]
    for k, kernel in enumerate(kernels.kernels):
        text = print_function(kernel.function) if kernel.function is not None else repr(kernel.stripe)
        parts.append((f"kernel{k}", f"{kernel.groups} {hashlib.sha256(text.encode()).hexdigest()}"))
    return parts


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the cache."""

    path: Path
    bytes: int
    used: float
    """Time of last use, seconds since the epoch."""


class DiskCache:
    """Files in a private folder; every failure is a warning and a recompilation, never an error."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes

    def read(self, key: str) -> bytes | None:
        """The payload of a sound entry; a damaged one is removed."""
        try:
            raw = self._path(key).read_bytes()
        except OSError:
            return None
        payload = _payload(raw, key)
        if payload is None:
            self.discard(key, "is damaged")
            return None
        with suppress(OSError):
            os.utime(self._path(key))
        return payload

    def write(self, key: str, payload: bytes) -> None:
        """Store atomically, then shrink the cache to its bound."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix="tmp-", delete=False) as file:
                file.write(_header(key, payload))
                file.write(payload)
            os.replace(file.name, self._path(key))
            self._shrink()
        except OSError as problem:
            warnings.warn(f"the kernel cache {self.folder} cannot be written: {problem}", stacklevel=3)

    def discard(self, key: str, reason: str) -> None:
        warnings.warn(f"entry {key[:12]}… of the kernel cache {reason}; recompiling", stacklevel=4)
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """All entries, least recently used first."""
        return sorted(self._scan(), key=lambda e: e.used)

    def clear(self) -> int:
        """Remove every entry; how many there were."""
        entries = self.entries()
        for entry in entries:
            entry.path.unlink(missing_ok=True)
        return len(entries)

    def verify(self) -> list[Path]:
        """Entries that are damaged."""
        return [e.path for e in self.entries() if _payload(e.path.read_bytes(), e.path.stem) is None]

    def _scan(self) -> Iterator[Entry]:
        if not self.folder.is_dir():
            return
        for path in self.folder.glob("*.tilecache"):
            try:
                status = path.stat()
            except OSError:
                continue
            yield Entry(path, status.st_size, status.st_mtime)

    def _shrink(self) -> None:
        entries = self.entries()
        total = sum(e.bytes for e in entries)
        for entry in entries:
            if total <= self.max_bytes:
                return
            entry.path.unlink(missing_ok=True)
            total -= entry.bytes

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.tilecache"


def _header(key: str, payload: bytes) -> bytes:
    return MAGIC + key.encode() + len(payload).to_bytes(8, "little") + hashlib.sha256(payload).digest()


def _payload(raw: bytes, key: str) -> bytes | None:
    payload = raw[_HEADER:]
    return payload if raw[:_HEADER] == _header(key, payload) else None
