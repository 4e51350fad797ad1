"""The disk cache by itself: damage of every kind, many writers, a full disk, folders of other users."""

from __future__ import annotations

import os
import resource
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from tile_hal.disk_cache import MAX_BYTES, SUFFIX, DiskCache

KEY, PAYLOAD = "ab" * 32, bytes(range(256))
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


def entry(folder: Path) -> Path:
    return folder / f"{KEY}{SUFFIX}"


def children(count: int, work: Callable[[int], None]) -> list[int]:
    """Exit codes of forked processes that do `work`: 0 where it raised nothing."""
    processes: list[int] = []
    for number in range(count):
        process = os.fork()
        if not process:
            code = 1
            try:
                work(number)
                code = 0
            finally:
                os._exit(code)
        processes.append(process)
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def test_folders_and_entries_are_for_their_user_alone(tmp_path: Path) -> None:
    """Whatever the process lets others do with its new files."""
    others = os.umask(0)
    try:
        DiskCache(tmp_path / "new" / "kernels").write(KEY, PAYLOAD)
    finally:
        os.umask(others)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"new": 0o700, "kernels": 0o700, f"{KEY}{SUFFIX}": 0o600}


def test_an_entry_cut_off_at_any_byte_is_no_entry(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.write(KEY, PAYLOAD)
    whole = entry(tmp_path).read_bytes()
    for length in range(len(whole)):
        entry(tmp_path).write_bytes(whole[:length])
        with pytest.warns(UserWarning, match="is damaged; recompiling"):
            assert cache.read(KEY) is None
        assert not entry(tmp_path).exists()
    entry(tmp_path).write_bytes(whole)
    assert cache.read(KEY) == PAYLOAD


def test_a_poisoned_byte_anywhere_is_noticed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.write(KEY, PAYLOAD)
    whole = entry(tmp_path).read_bytes()
    for at in range(len(whole)):
        entry(tmp_path).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.warns(UserWarning, match="is damaged; recompiling"):
            assert cache.read(KEY) is None


@pytest.mark.parametrize("links", [True, False])
def test_the_first_of_those_that_store_at_once_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Where files have no second names, the last one does."""
    if not links:
        monkeypatch.setattr("os.link", unlinked)
    cache = DiskCache(tmp_path)
    for payload in (b"first", b"second"):
        cache.write(KEY, payload, first=True)
    assert cache.read(KEY) == (b"first" if links else b"second")
    assert len(list(tmp_path.iterdir())) == 1


def unlinked(made: str, path: Path) -> None:
    raise PermissionError(made, path)


def test_a_hundred_processes_write_at_once(tmp_path: Path) -> None:
    """Whoever reads meanwhile finds nothing or something whole, and nobody is warned."""
    keys = [f"{n:064x}" for n in range(4)]

    def work(number: int) -> None:
        warnings.simplefilter("error")
        cache = DiskCache(tmp_path)
        for round_ in range(8):
            key = keys[(number + round_) % len(keys)]
            cache.write(key, key.encode() * 100)
            assert cache.read(key) in (None, key.encode() * 100)

    assert children(100, work) == [0] * 100
    cache = DiskCache(tmp_path)
    assert [e.path.stem for e in sorted(cache.entries(), key=lambda e: e.path)] == keys and cache.verify() == []
    assert len(list(tmp_path.iterdir())) == len(keys), "an unfinished file was left"


@pytest.mark.parametrize("kind", ["pipe", "endless", "loop", "folder", "large"])
def test_what_is_no_file_of_an_entrys_size_is_no_entry(tmp_path: Path, kind: str) -> None:
    path = entry(tmp_path)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path)
        case "folder":
            path.mkdir()
        case _:
            path.touch()
            os.truncate(path, MAX_BYTES + 1)
    assert DiskCache(tmp_path).read(KEY) is None


def test_a_full_disk_is_a_warning_and_leaves_nothing(tmp_path: Path) -> None:
    """Files of this process may not grow: writing fails halfway through an entry."""

    def work(number: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            DiskCache(tmp_path).write(KEY, PAYLOAD)
            assert "cannot be written" in str(caught[0].message)

    assert children(1, work) == [0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    folder = tmp_path / "theirs"
    cache = DiskCache(folder)
    cache.write(KEY, PAYLOAD)
    folder.chmod(mode)
    owner = 0 if os.getuid() else 4711
    if owner:
        os.chown(folder, owner, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: os.stat(folder).st_uid + 1)
    with pytest.warns(UserWarning, match="is not used: others may write it"):
        assert cache.read(KEY) is None
    with pytest.warns(UserWarning, match="is not used: others may write it"):
        cache.write(KEY, b"mine")
    assert entry(folder).read_bytes().endswith(PAYLOAD)


def test_a_folder_that_is_a_file_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="cannot be written"):
        DiskCache(tmp_path / "file").write(KEY, PAYLOAD)
    assert DiskCache(tmp_path / "file").read(KEY) is None
