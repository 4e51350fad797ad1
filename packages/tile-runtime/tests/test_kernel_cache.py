"""The kernel cache on disk: whatever happens to it, calls give right answers."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal import disk_cache
from tile_hal.disk_cache import DiskCache
from tile_runtime.programs import cache as module
from tile_runtime.programs.cache import build, cache_key, key_parts

KEY, PAYLOAD = "ab" * 32, b"machine code"
SQUARE = tile.Function("function (A) -> (B) { B = A * A; }")
A = np.arange(6, dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def run(device: str = "llvm") -> None:
    """Compile afresh (a new evaluator knows no program) and check the answer."""
    np.testing.assert_array_equal(tile.Evaluator(device)(SQUARE, A), A * A)


def entry(folder: Path) -> Path:
    (found,) = folder.glob("*.tilecache")
    return found


@pytest.mark.parametrize("device", ["llvm", "interp"])
def test_a_second_process_would_compile_nothing(folder: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(device)
    assert folder.stat().st_mode & 0o077 == 0

    def refuse(*_: Any) -> Any:
        raise AssertionError("compiled again")

    monkeypatch.setattr(tile.device(device).compiler, "build", refuse)
    run(device)


def test_damage_at_every_byte_of_the_header_is_noticed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.write(KEY, PAYLOAD)
    raw = (path := entry(tmp_path)).read_bytes()
    assert cache.read(KEY) == PAYLOAD
    damaged = [raw[:n] + bytes([raw[n] ^ 1]) + raw[n + 1 :] for n in range(len(raw))]
    damaged += [raw[:n] for n in range(len(raw))] + [raw + b"\0", b""]
    for data in damaged:
        path.write_bytes(data)
        assert cache.verify() == [path]
        with pytest.warns(UserWarning, match="is damaged; recompiling"):
            assert cache.read(KEY) is None
        assert not path.exists()


@pytest.mark.parametrize("device", ["llvm", "interp"])
def test_a_damaged_entry_is_compiled_and_stored_again(folder: Path, device: str) -> None:
    run(device)
    path = entry(folder)
    sound = path.read_bytes()
    for n in (0, 20, len(sound) // 2, len(sound) - 1):
        path.write_bytes(sound[:n] + bytes([sound[n] ^ 255]) + sound[n + 1 :])
        with pytest.warns(UserWarning, match="is damaged"):
            run(device)
        assert entry(folder).read_bytes() == sound


@pytest.mark.parametrize("device", ["llvm", "interp"])
def test_a_sound_entry_that_the_device_rejects(folder: Path, device: str) -> None:
    run(device)
    DiskCache(folder).write(entry(folder).stem, b"code of another machine")
    with pytest.warns(UserWarning, match="does not fit this device"):
        run(device)


def test_an_entry_under_another_key_is_damaged(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.write(KEY, PAYLOAD)
    entry(tmp_path).rename(tmp_path / f"{'cd' * 32}.tilecache")
    with pytest.warns(UserWarning, match="damaged"):
        assert cache.read("cd" * 32) is None


def test_the_key_names_everything_that_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    device = tile.device("llvm")
    kernels = SQUARE.lower(A, device=device).kernels
    names = [name for name, _ in key_parts(device, kernels)]
    assert names == ["tile-ir", "sources", "device", "target", "kernel0"]
    key = cache_key(device, kernels)
    assert key == cache_key(device, SQUARE.lower(A, device=device).kernels)
    assert key != cache_key(device, SQUARE.lower(A[:5], device=device).kernels)
    assert key != cache_key(device, tile.Evaluator(device, fast_math=True).lower(SQUARE, A).kernels)
    monkeypatch.setattr(module, "version", lambda name: "99")
    assert key != cache_key(device, kernels)


def test_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("off", "read"):
        monkeypatch.setenv("TILE_CACHE", setting)
        run()
        assert not folder.exists()
    monkeypatch.setenv("TILE_CACHE", "on")
    run()
    sound = entry(folder).stat().st_mtime_ns
    monkeypatch.setenv("TILE_CACHE", "off")
    monkeypatch.setattr(DiskCache, "read", lambda *_: pytest.fail("read although it is off"))
    run()
    assert entry(folder).stat().st_mtime_ns == sound


def test_a_folder_that_others_may_write_is_not_used(folder: Path) -> None:
    run()
    for mode in (0o770, 0o707, 0o777):
        folder.chmod(mode)
        with pytest.warns(UserWarning, match="others may write it"):
            assert DiskCache(folder).read(entry(folder).stem) is None
        with pytest.warns(UserWarning, match="others may write it"):
            DiskCache(folder).write(KEY, PAYLOAD)
        assert not (folder / f"{KEY}.tilecache").exists()
        with pytest.warns(UserWarning, match="others may write it"):
            run()
    folder.chmod(0o755)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*kernel cache")
        run()


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    with pytest.warns(UserWarning, match="cannot be written"):
        run()


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="permissions do not bind root")
def test_a_read_only_folder_is_a_warning(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o500)
    with pytest.warns(UserWarning, match="cannot be written"):
        run()


def test_a_full_disk_leaves_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk_cache.os, "replace", full)
    with pytest.warns(UserWarning, match="No space left"):
        DiskCache(tmp_path).write(KEY, PAYLOAD)
    assert list(tmp_path.iterdir()) == []


def test_the_least_recently_used_entries_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskCache, "_writes", 1)  # no look at the folder's size meanwhile
    cache = DiskCache(tmp_path, max_bytes=1000)
    keys = [f"{n:064x}" for n in range(5)]
    for n, key in enumerate(keys):
        cache.write(key, bytes(200))
        os.utime(tmp_path / f"{key}.tilecache", (n, n))
    left = tmp_path / "tmp-old"
    left.write_bytes(b"of a killed process")
    os.utime(left, (0, 0))
    (tmp_path / "tmp-new").write_bytes(b"being written")
    (tmp_path / "README").write_text("not ours")
    assert cache.read(keys[0]) is not None  # used just now
    cache.shrink()
    assert [e.path.stem for e in cache.entries()] == [keys[3], keys[4], keys[0]]
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".tilecache") == ["README", "tmp-new"]
    assert cache.clear() == 3
    assert [p.name for p in tmp_path.iterdir()] == ["README"]


def test_editing_an_emitter_changes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "backend_being_written"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("backend_being_written")
    first = disk_cache.sources("backend_being_written")
    disk_cache.sources.cache_clear()
    assert disk_cache.sources("backend_being_written") == first
    (package / "emit.py").write_text("x = 1")
    disk_cache.sources.cache_clear()
    assert disk_cache.sources("backend_being_written") != first


def test_processes_share_a_folder(folder: Path) -> None:
    code = (
        "import numpy as np, tile_runtime as tile, warnings; warnings.filterwarnings('error', message='.*kernel cache')\n"
        "a = np.arange(6, dtype=np.float32)\n"
        "for c in range(2): assert (tile.Function(f'function (A) -> (B) {{ B = A * {c}.0; }}')(a) == a * c).all()\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [p.wait(timeout=60) for p in running] == [0, 0]
    assert len(DiskCache(folder).entries()) == 2 and DiskCache(folder).verify() == []


def test_devices_that_keep_no_code_are_asked_for_none(folder: Path, late: Any) -> None:
    build(late, SQUARE.lower(A, device=late).kernels)
    assert not folder.exists()
