"""Labels of applications: where they show, and that nothing else depends on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.kernels import listed

MATMUL = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")
RELU = tile.Function("function (X) -> (Y) { Y = (X > 0 ? X : 0); }")
EXP = tile.Function("function (X) -> (Y) { Y = exp(X); }")
DATA = np.random.default_rng(7).standard_normal((16, 16)).astype(np.float32)


def _network(*labels: str, rows: int = 16) -> Any:
    """A product and an activation per label; the products of all but the first do the same."""
    y = x = tile.placeholder("float32", (rows, 16), name="x")
    for label in labels:
        with tile.provenance(label):
            with tile.provenance("product"):
                y = MATMUL(y, DATA)
            with tile.provenance("activation"):
                y = RELU(y)
    return tile.compose([x], {"y": y})


@pytest.mark.parametrize("device", ["interp", "llvm"])
def test_kernels_say_what_they_are_part_of(device: str) -> None:
    low = _network("first", "second").lower(DATA, device=device)
    labels = {label for kernel in low.kernels.kernels for label in kernel.labels}
    assert labels == {f"{a} > {b}" for a in ("first", "second") for b in ("product", "activation")}
    assert "first > product" in low.explain() and "second &gt; activation" in low.explain_html()
    assert "second > activation" in json.dumps(low.report().to_dict())
    assert device == "interp" or "first > product" in low.source


def test_kernels_of_several_applications_name_some_and_count_the_rest() -> None:
    low = _network(*"abcdefg").lower(DATA, device="llvm")
    (shared,) = (k for k in low.kernels.kernels if len(k.labels) > 4)
    assert len(low.kernels.kernels) < 7
    assert listed(("a", "b", "c", "d", "e", "f")) == "a, b, c, d and 2 more"
    assert shared.title.endswith("more)")


def test_nothing_that_is_compiled_depends_on_labels() -> None:
    plain, named = (_network(*labels).lower(DATA, device="llvm") for labels in (("", "", ""), ("one", "two", "three")))
    assert plain.program == named.program
    assert str(plain.stripe) == str(named.stripe)
    assert [k.function for k in plain.kernels.kernels] == [k.function for k in named.kernels.kernels]
    assert plain.typed.identity == named.typed.identity


def test_programs_from_the_disk_cache_have_the_labels_of_this_process(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path))
    first, second = (_network(*labels).lower(DATA, device="llvm") for labels in ("ab", "cd"))
    first.executable  # noqa: B018
    monkeypatch.setattr("tile_opt.compile", lambda *_, **__: pytest.fail("compiled again"))
    prepared = second.executable._prepared  # pyright: ignore[reportPrivateUsage]
    labels = {label for kernel in prepared.kernel_list.kernels for label in kernel.labels}
    assert "c > product" in labels and not any(label.startswith(("a", "b")) for label in labels)


def test_errors_name_the_application() -> None:
    x = tile.placeholder("float32", (4, 3), name="x")
    calls: list[tuple[str, Any]] = [
        ("TILE-E107(?s:.*)in: net > Conv_7\n", lambda: MATMUL(x, np.ones((4, 4), np.float32))),
        ("TILE-E504(?s:.*)in: net > Conv_7\n", lambda: MATMUL(x)),
        ("TILE-E509(?s:.*)in: net > Conv_7$", lambda: tile.compose([x], [])),
    ]
    for message, call in calls:
        found = pytest.raises(tile.TileTypeError, match=message)
        with found as caught, tile.provenance("net"), tile.provenance("Conv_7"):
            call()
        assert str(caught.value).count("in: ") == 1
    with pytest.raises(tile.TileTypeError, match="text, not int 3"), tile.provenance(3):  # pyright: ignore[reportArgumentType]
        pass


def test_errors_of_the_compiler_name_the_application() -> None:
    twice = tile.Function("function (A[N]) -> (B) { B[0 : 2] = =(A[i]); }")
    x = tile.placeholder("float32", (4,), name="x")
    with tile.provenance("Twice_1"):
        y = twice(x)
    with pytest.raises(tile.TileTypeError, match="in: Twice_1"):
        tile.compose([x], [y])(np.ones(4, np.float32), device="llvm")


def test_gradients_name_what_they_are_of() -> None:
    x = tile.placeholder("float32", (16, 16), name="x")
    with tile.provenance("Exp_1"):
        y = EXP(x)
    low = tile.vjp(tile.compose([x], [y]), wrt="x").lower(DATA, DATA, device="llvm")
    assert {label for k in low.kernels.kernels for label in k.labels} >= {"gradient of Exp_1"}


def test_compositions_inside_keep_their_labels() -> None:
    inner = _network("conv")
    z = tile.placeholder("float32", (16, 16), name="z")
    with tile.provenance("outer\nblock"):
        outer = tile.compose([z], [inner(z)])
    labels = {label for k in outer.lower(DATA, device="llvm").kernels.kernels for label in k.labels}
    assert labels == {"outer block > conv > product", "outer block > conv > activation"}
