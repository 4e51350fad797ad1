"""Whole programs in the disk cache: another process runs them without compiling; whatever happens to an entry, answers are right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_opt
import tile_runtime as tile
from tile_hal.disk_cache import DiskCache
from tile_ir.outline import Outline
from tile_ir.record import from_record, to_record
from tile_runtime.programs import lookup, stored

RNG = np.random.default_rng(0)
A = RNG.random((5, 7), np.float32)
SQUARE = tile.Function("function (A) -> (B) { B = A * A; }")
TWO = tile.Function("function (A[M, N]) -> (S, T) { S[i : M] = +(A[i, j]); T[j : N] = >(A[i, j]); }")
TEMPORARY = tile.Function(
    "function (A[M, N]) -> (C) { S[i, k : M, M] = +(A[i, j] * A[k, j]); T[i, j : M, N] = +(S[i, k] * A[k, j]); C = T / 3; }"
)
WEIGHTS = RNG.random((7, 3), np.float32)
MATMUL = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")


def composed(weights: Any = WEIGHTS) -> tile.Composition:
    a = tile.placeholder("float32", A.shape, "A")
    return tile.compose([a], [SQUARE(MATMUL(a, weights))])


PROGRAMS: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "one kernel": (lambda: SQUARE, A, A * A),
    "two outputs": (lambda: TWO, A, (A.sum(1), A.max(0))),
    "temporaries": (lambda: TEMPORARY, A, (A @ A.T @ A) / 3),
    "size 0": (lambda: SQUARE, A[:0], A[:0]),
    "a scalar": (lambda: SQUARE, np.float32(3), np.float32(9)),
    "integers": (lambda: SQUARE, np.arange(4), np.arange(4) ** 2),
    "constants": (composed, A, (A @ WEIGHTS) ** 2),
    "bound tensors": (lambda: composed(tile.asarray(WEIGHTS, device="llvm")), A, (A @ WEIGHTS) ** 2),
    "a gradient": (lambda: tile.vjp(SQUARE, "A"), (A, A), 2 * A * A),
    "an output that is an input": (lambda: tile.Function("function (A) -> (A) { }"), A, A),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def entry(folder: Path) -> Path:
    (found,) = folder.glob("*.tilecache")
    return found


def check(function: Any, args: Any, want: Any, device: str = "llvm") -> None:
    """A new evaluator knows no program."""
    got = tile.Evaluator(device)(function, *(args if isinstance(args, tuple) else (args,)))
    results = got if isinstance(got, tuple) else (got,)
    for result, right in zip(results, want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5)


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nothing can be compiled."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("compiled again")

    monkeypatch.setattr(tile_opt, "compile", refused)
    monkeypatch.setattr(type(tile.device("llvm").compiler), "build", refused)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_every_kind_run_from_the_cache(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, args, want = PROGRAMS[name]
    check(make(), args, want)
    refuse(monkeypatch)
    check(make(), args, want)


@pytest.mark.parametrize("name", PROGRAMS)
def test_outlines_are_records(name: str) -> None:
    make, args, _ = PROGRAMS[name]
    kernels = make().lower(*(args if isinstance(args, tuple) else (args,)), device="llvm").kernels
    outline = Outline.of(kernels)
    assert from_record(Outline, json.loads(json.dumps(to_record(outline)))) == outline
    again = outline.kernel_list(kernels.target, [c.data for c in kernels.constants])
    assert Outline.of(again) == outline and again.steps == kernels.steps and again.buffers == kernels.buffers


@pytest.mark.parametrize("bad", [[], {}, None, 3, [1, 2], [[["k"]], [], [], [], []], [[], [], [], [], ["1"]]], ids=str)
def test_records_of_something_else_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="no record"):
        from_record(Outline, bad)


def said(low: Any) -> list[str]:
    """What the stages print, but for how long they took."""
    explained = re.sub(r"[0-9.]+ (ms|s)\b", "", low.explain())
    return [str(low.program), str(low.stripe), str(low.plans), low.source, low.asm, explained]


def test_the_stages_of_a_stored_program_are_made_on_demand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = TEMPORARY.lower(A, device="llvm")
    assert fresh.executable
    texts = said(fresh)
    low = TEMPORARY.lower(A, device="llvm")
    assert low.executable and "compiled" not in vars(low)
    monkeypatch.setattr(type(tile.device("llvm").compiler), "build", lambda *_: pytest.fail("built again"))
    assert said(low) == texts


def test_damage_anywhere_is_a_warning_and_a_compilation(folder: Path) -> None:
    check(SQUARE, A, A * A)
    path = entry(folder)
    sound = path.read_bytes()
    places = [*range(0, 120, 17), *range(120, len(sound), len(sound) // 12)]
    damaged = [sound[:n] + bytes([sound[n] ^ 255]) + sound[n + 1 :] for n in places] + [sound[:n] for n in places]
    for data in damaged:
        path.write_bytes(data)
        with pytest.warns(UserWarning, match="is damaged"):
            check(SQUARE, A, A * A)
        assert entry(folder).read_bytes() == sound


def test_a_sound_file_with_another_content_is_a_warning_and_a_compilation(folder: Path) -> None:
    """Whoever wrote it, every cut and every wrong value in it is noticed before anything runs."""
    check(SQUARE, A, A * A)
    cache, key = DiskCache(folder), entry(folder).stem
    sound = cache.read(key) or b""
    end = sound.index(b"\n")
    wrong = [sound[:n] for n in (0, 1, end // 2, end, end + 1, len(sound) - 1)]
    wrong += [b"null" + sound[end:], b"[" * 100_000 + sound[end:], sound.replace(b'"float32"', b'"float33"')]
    document = json.loads(sound[:end])
    for place, value in ((0, 1), (2, None), (4, []), (5, -1), (5, 10**9), (5, True), (6, [[0, 4]])):
        changed = [value if n == place else part for n, part in enumerate(document)]
        wrong.append(json.dumps(changed).encode() + sound[end:])
    for data in wrong:
        cache.write(key, data)
        with pytest.warns(UserWarning, match="does not fit this device"):
            check(SQUARE, A, A * A)
        assert cache.read(key) == sound


def key(function: Any = SQUARE, array: Any = A, **options: Any) -> str:
    low = tile.Evaluator("llvm", **options).lower(function, array)
    return stored.Place(low.device, low.target, low._typed, low.given).key


def test_the_key_has_everything_that_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = SQUARE.lower(A, device="llvm").plans
    other = {name: replace(plan, levels=()) for name, plan in plans.items()}
    keys = [
        key(),
        key(array=A[1:]),
        key(array=A.astype(np.float64)),
        key(tile.Function("function (A) -> (B) { B = A + A; }")),
        key(tile.Function(SQUARE.source, "named.tile")),
        key(composed()),
        key(composed(WEIGHTS + 1)),
        key(composed(tile.asarray(WEIGHTS, device="llvm"))),
        key(fast_math=True),
        key(plans=plans),
        key(plans=other),
    ]
    assert key() == keys[0] and key(composed()) == keys[5]
    stored._versions.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(stored, "version", lambda _: "99")
        keys.append(key())
    stored._versions.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(type(tile.device("llvm").compiler), "fingerprint", "another processor")
        keys.append(key())
    with monkeypatch.context() as patch:
        patch.setattr(stored, "sources", lambda package: f"{package} was edited")
        keys.append(key())
    assert len(set(keys)) == len(keys)


def test_the_key_needs_no_parser() -> None:
    code = (
        "import sys, numpy as np, tile_runtime as tile\n"
        "f = tile.Function('function (A) -> (B) { B = A * A; }')\n"
        "f(np.ones(3, np.float32)); print('islpy' in sys.modules, 'tile_opt' in sys.modules)"
    )
    printed = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in "ab"
    ]
    assert printed[1].split() == ["False", "False"]


def test_other_devices_load_them_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = next((d for d in tile.devices() if d.id.startswith("opencl")), None)
    if device is None:
        pytest.skip("no OpenCL device")
    check(TEMPORARY, A, (A @ A.T @ A) / 3, device.id)
    check(TEMPORARY, A, (A @ A.T @ A) / 3)
    assert len(DiskCache(folder).entries()) == 2
    monkeypatch.setattr(tile_opt, "compile", lambda *_, **__: pytest.fail("compiled again"))
    check(TEMPORARY, A, (A @ A.T @ A) / 3, device.id)
    check(TEMPORARY, A, (A @ A.T @ A) / 3)


def test_whoever_looks_at_passes_sees_them(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(SQUARE, A, A * A)
    monkeypatch.setenv("TILE_DUMP_IR", str(tmp_path / "dump"))
    check(SQUARE, A, A * A)
    assert list((tmp_path / "dump").iterdir())


def test_the_cache_may_be_off_or_read_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("off", "read"):
        monkeypatch.setenv("TILE_CACHE", setting)
        check(SQUARE, A, A * A)
        assert not folder.exists()
    monkeypatch.setenv("TILE_CACHE", "on")
    check(SQUARE, A, A * A)
    DiskCache(folder).write(entry(folder).stem, b"foreign")
    monkeypatch.setenv("TILE_CACHE", "off")
    check(SQUARE, A, A * A)
    monkeypatch.setenv("TILE_CACHE", "read")
    with pytest.warns(UserWarning, match="does not fit"):
        check(SQUARE, A, A * A)
    assert not list(folder.glob("*.tilecache"))


def test_an_array_in_a_composition_is_kept_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = RNG.random((7, 30_000), np.float32)
    check(composed(large), A, (A @ large) ** 2)
    assert entry(folder).stat().st_size < large.nbytes
    refuse(monkeypatch)
    function = composed(large)
    low = tile.Evaluator("llvm").lower(function, A)
    found = lookup.find(low._place)
    assert found is not None
    held = [op.data for op in low.program.ops if hasattr(op, "data")]
    assert [c.data is h for c, h in zip(found[0].kernels.constants, held, strict=True)] == [True]
    check(function, A, (A @ large) ** 2)


def test_processes_may_write_the_same_entry_at_once(folder: Path) -> None:
    code = (
        "import warnings; warnings.filterwarnings('error', message='.*kernel cache'); import numpy as np\n"
        "import tile_runtime as tile; a = np.ones((5, 7), np.float32)\n"
        f"print(float(tile.Function({TEMPORARY.source!r})(a).sum()))"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert len({p.communicate(timeout=60)[0] for p in running}) == 1 and all(p.returncode == 0 for p in running)
    assert DiskCache(folder).verify() == [] and len(DiskCache(folder).entries()) == 1
