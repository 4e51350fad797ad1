"""The disk cache: one file per key, verified on read, bounded in size, never unpickled.

An entry is a header (magic, key, payload length, SHA-256) and the payload: compiled code, programs, what became of a plugin.
Whoever can write the folder can make this process run code, so a folder that others may write is not used.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from sys import modules

from tile_ir.frozen import frozen
from tile_ir.settings import Settings

MAGIC = b"TILECACHE1\n"
MAX_BYTES = 1 << 30
SUFFIX = ".tilecache"
_KEY_BYTES = 64
_HEADER = len(MAGIC) + _KEY_BYTES + 8 + 32
_SHRINK_EVERY = 64
"""Writes of one process between looks at the folder's size."""
_ABANDONED = 3600.0
"""Seconds after which an unfinished file is what a killed process left."""


PLUGINS = "plugins"
"""The part of the cache that remembers what became of plugins when they were tried."""


def disk_cache(settings: Settings, part: str = "") -> DiskCache:
    """The cache in the folder that the settings name, else in the default one: compiled code, or another part of it."""
    return DiskCache((settings.cache_dir or default_folder()) / part)


def default_folder() -> Path:
    """The platform's cache folder for this user."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("tile", appauthor=False)) / "kernels"


@frozen
class Entry:
    """One file of the cache."""

    path: Path
    bytes: int
    used: float
    """Time of last use, seconds since the epoch."""


def _make(folder: Path) -> None:
    """The folder, and those above it that are missing, for nobody but this user."""
    for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
        missing.mkdir(exist_ok=True, mode=0o700)


def _linked(made: str, path: Path) -> bool:
    """A file has its name, or another had it before; False where files have no second names."""
    try:
        os.link(made, path)
    except FileExistsError:
        pass
    except OSError:
        return False
    os.unlink(made)
    return True


class DiskCache:
    """Files in a private folder; every failure is a warning and a recompilation, never an error."""

    _writes = 0
    """Of this process, in any folder."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes

    def read(self, key: str) -> bytes | None:
        """The payload of a sound entry; a damaged one is removed."""
        if not self._is_private():
            return None
        try:
            raw = _content(self._path(key))
        except OSError:
            return None
        payload = _payload(raw, key)
        if payload is None:
            self.discard(key, "is damaged")
            return None
        with suppress(OSError):
            os.utime(self._path(key))
        return payload

    def peek(self, entry: Entry) -> bytes | None:
        """The payload of a sound entry, which does not count as used for that."""
        try:
            return _payload(_content(entry.path), entry.path.stem)
        except OSError:
            return None

    def write(self, key: str, payload: bytes, first: bool = False) -> None:
        """Store atomically, then keep the cache within its bound; with `first` an entry that is there stays."""
        try:
            _make(self.folder)
            if not self._is_private():
                return
            self._store(key, payload, first)
        except OSError as problem:
            warnings.warn(f"the kernel cache {self.folder} cannot be written: {problem}", stacklevel=3)
            return
        if DiskCache._writes % _SHRINK_EVERY == 0:
            self.shrink()
        DiskCache._writes += 1

    def _store(self, key: str, payload: bytes, first: bool) -> None:
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix="tmp-", delete=False) as file:
            try:
                file.write(_header(key, payload))
                file.write(payload)
                file.close()
                if not (first and _linked(file.name, self._path(key))):
                    os.replace(file.name, self._path(key))
            except BaseException:
                with suppress(OSError):
                    os.unlink(file.name)
                raise

    def discard(self, key: str, reason: str) -> None:
        """Remove an entry, with a warning."""
        warnings.warn(f"entry {key[:12]}… of the kernel cache {reason}; recompiling", stacklevel=4)
        _remove(self._path(key))

    def entries(self) -> list[Entry]:
        """All entries, least recently used first."""
        return sorted(self._scan(SUFFIX), key=lambda e: e.used)

    def clear(self) -> int:
        """Remove every entry; how many there were."""
        entries = self.entries()
        for entry in (*entries, *self._scan("")):
            _remove(entry.path)
        return len(entries)

    def verify(self) -> list[Path]:
        """Entries that are damaged or cannot be read."""
        return [e.path for e in self.entries() if not _is_sound(e.path)]

    def shrink(self) -> None:
        """Remove what killed processes left, then the least recently used entries beyond the bound."""
        for left in self._scan(""):
            if left.used < time.time() - _ABANDONED:
                _remove(left.path)
        entries = self.entries()
        total = sum(e.bytes for e in entries)
        for entry in entries:
            if total <= self.max_bytes:
                return
            _remove(entry.path)
            total -= entry.bytes

    def _scan(self, suffix: str) -> Iterator[Entry]:
        """Our files with that suffix; the ones being written have none."""
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if path.suffix != suffix or not (suffix or path.name.startswith("tmp-")):
                continue
            try:
                status = path.stat()
            except OSError:
                continue
            yield Entry(path, status.st_size, status.st_mtime)

    def _is_private(self) -> bool:
        """False, with a warning, when somebody else may write the folder."""
        try:
            status = self.folder.stat()
        except OSError:
            return True  # nothing there yet
        if os.name != "posix" or (
            status.st_uid in (os.getuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        ):
            return True
        warnings.warn(
            f"the kernel cache {self.folder} is not used: others may write it (chmod go-w mends that)", stacklevel=4
        )
        return False

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    """Of a file; OSError for what is none: a pipe has no end, and its opening waits for a writer."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_BYTES:
            raise OSError(f"{path} is no file of at most {MAX_BYTES} bytes")
        return file.read()


def _is_sound(path: Path) -> bool:
    try:
        return _payload(_content(path), path.stem) is not None
    except OSError:
        return False


def _header(key: str, payload: bytes) -> bytes:
    return MAGIC + key.encode() + len(payload).to_bytes(8, "little") + hashlib.sha256(payload).digest()


def _payload(raw: bytes, key: str) -> bytes | None:
    payload = raw[_HEADER:]
    return payload if raw[:_HEADER] == _header(key, payload) else None


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
    """Where a package's files are, whether it is imported or not; nowhere for what is no package."""
    if package in modules:
        return getattr(modules[package], "__path__", ())
    with suppress(ImportError, ValueError):
        found = find_spec(package)
        return found.submodule_search_locations or () if found else ()
    return ()
