"""Traces on disk: the next process neither traces nor converts; what decides a trace, and what becomes of damaged ones."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tile_torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from tile_hal.disk_cache import DiskCache
from tile_torch import backend, traces
from tile_torch.traces import graphs, keys, store
from tile_torch.traces.records import BROKEN, Unkept, packed, unpacked
from tile_torch.walk import Walk
from torch import Tensor, nn

Given = Callable[[], Tensor]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    return tmp_path


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was traced and walked."""
    found: list[str] = []
    whole, walk = backend.aot_autograd, Walk.run
    monkeypatch.setattr(backend, "aot_autograd", lambda **how: found.append("traced") or whole(**how))
    monkeypatch.setattr(Walk, "run", lambda self: found.append("walked") or walk(self))
    yield found


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


def step(model: nn.Module, x: Tensor, *, compiled: bool = True) -> list[Tensor]:
    """The loss, gradients and buffers of one step, as another process would compute them."""
    torch._dynamo.reset()
    loss = (torch.compile(model, backend="tile") if compiled else model)(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]


def test_a_training_step_is_traced_and_walked_once(traced: list[str]) -> None:
    x = torch.randn(2, 2, 4, 4)
    first = step(network(), x)
    assert traced.count("traced") == 1 and "walked" in traced
    traced.clear()
    again, wanted = step(network(), x), step(network(), x, compiled=False)
    assert not traced
    assert all(map(torch.equal, again, first))
    assert all(torch.allclose(a, w, atol=1e-5) for a, w in zip(again, wanted, strict=True))


def test_the_backward_pass_may_be_called_again_whether_traced_or_kept(traced: list[str]) -> None:
    for _ in range(2):
        torch._dynamo.reset()
        square = torch.compile(lambda x: (x * x).exp().sum(), backend="tile")
        x = torch.randn(4, requires_grad=True)
        square(x).backward()  # compiled for the first call, which keeps nothing
        assert x.grad is not None
        once = x.grad.clone()
        y = square(x)
        y.backward(retain_graph=True)
        y.backward()
        assert torch.allclose(x.grad, 3 * once)
    assert traced.count("traced") == 1


def test_a_kept_backward_pass_may_be_called_in_a_function_that_is_compiled(traced: list[str]) -> None:
    wanted, found = (network().requires_grad_() for _ in range(2))
    x = torch.randn(2, 2, 4, 4)
    wanted(x).square().mean().backward()

    def learn(model: nn.Module) -> None:
        model(x).square().mean().backward()

    for _ in range(2):
        torch._dynamo.reset()
        found.zero_grad()
        torch.compile(learn, backend="tile")(found)
        assert all(
            torch.allclose(p.grad, q.grad, atol=1e-5)
            for p, q in zip(found.parameters(), wanted.parameters(), strict=True)
        )
    assert traced.count("traced") == 1


def test_sources_of_what_makes_programs_are_in_a_graphs_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, before = keys.sources, keys.identity("[]")
    monkeypatch.setattr(keys, "sources", lambda package: package if package == "tile_lang" else whole(package))
    assert keys.identity("[]") != before


def test_inference_follows_its_parameters(traced: list[str]) -> None:
    x = torch.randn(2, 2, 4, 4)
    with torch.no_grad():
        torch.compile(network().eval(), backend="tile")(x)
        torch._dynamo.reset()
        traced.clear()
        model = network().eval()
        fast = torch.compile(model, backend="tile")
        fast(x)
        model[0].weight.mul_(2)  # pyright: ignore[reportIndexIssue]
        assert torch.allclose(fast(x), model(x), atol=1e-5)
    assert not traced


def test_explain_of_a_kept_trace_says_the_same() -> None:
    x = torch.randn(2, 2, 4, 4)
    step(network(), x)
    torch._dynamo.reset()
    with torch.no_grad():
        model = torch.compile(network().eval(), backend="tile")
        first = tile_torch.explain(model, x, kernels=True)
        torch._dynamo.reset()
        again = tile_torch.explain(torch.compile(network().eval(), backend="tile"), x, kernels=True)
    assert "convolution (" in first
    assert re.sub(r"[\d.]+ ms", "", again) == re.sub(r"[\d.]+ ms", "", first)


def test_a_pytorch_whose_wrappers_are_not_known_keeps_nothing_and_explain_says_so(
    traced: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "KNOWN", ("1.13",))
    x = torch.randn(2, 2, 4, 4)
    for _ in range(2):
        assert all(map(torch.isfinite, (r.sum() for r in step(network(), x))))
    assert traced.count("traced") == 2
    said = tile_torch.explain(torch.compile(torch.sin, backend="tile"), x)
    assert said.endswith(f"that needs PyTorch 1.13, and this is {torch.__version__}.")


def outputs(x: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    y = x.sin()
    return y, y[1:].T, x.T, None


def changed(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def constants(x: Tensor) -> Tensor:
    return x + torch.tensor([1.0, 2.0, 3.0]) * torch.tensor(2)


def complexes(x: Tensor) -> Tensor:
    return torch.fft.fft(x)


@pytest.mark.parametrize("function", [outputs, changed, constants, complexes])
def test_views_changes_and_constants_are_as_they_were(function: Callable[[Tensor], object]) -> None:
    wanted = tree(function, torch.arange(12.0).reshape(4, 3))
    for _ in range(2):
        torch._dynamo.reset()
        found = tree(torch.compile(function, backend="tile"), torch.arange(12.0).reshape(4, 3))
        assert [(f.shape, f.stride(), f.is_contiguous()) for f in found] == [
            (w.shape, w.stride(), w.is_contiguous()) for w in wanted
        ]
        assert all(torch.allclose(f, w, atol=1e-5) for f, w in zip(found, wanted, strict=True))


def tree(function: Callable[[Tensor], object], x: Tensor) -> list[Tensor]:
    made = function(x)
    return [x, *(t for t in (made if isinstance(made, tuple) else (made,)) if isinstance(t, Tensor))]


OTHERS: dict[str, Given] = {
    "a shape": lambda: torch.ones(3, 4),
    "a layout": lambda: torch.ones(4, 2).T,
    "a dtype": lambda: torch.ones(2, 4, dtype=torch.float64),
    "a gradient": lambda: torch.ones(2, 4, requires_grad=True),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_input_is_another_trace(other: str, traced: list[str]) -> None:
    for x in (torch.ones(2, 4), OTHERS[other]()):
        torch._dynamo.reset()
        torch.compile(lambda x: x * 2 + 1, backend="tile", dynamic=False)(x)
    assert traced.count("traced") == 2


def test_autocast_is_another_trace(traced: list[str]) -> None:
    x, model = torch.ones(2, 4), nn.Linear(4, 3)
    for enabled in (False, True):
        torch._dynamo.reset()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            found = torch.compile(model, backend="tile")(x)
        assert found.dtype is (torch.bfloat16 if enabled else torch.float32)
    assert traced.count("traced") == 2


def test_what_has_no_name_is_traced_each_time(traced: list[str]) -> None:
    whole = torch.ones(6)
    for pair in ((whole[:3], whole[3:]), (torch.ones(3), torch.ones(3))):
        for _ in range(2):
            torch._dynamo.reset()
            torch.compile(torch.add, backend="tile")(*pair)
    assert traced.count("traced") == 3


DAMAGES = ["[1, null, null, []]", json.dumps(["[[]]", None, {"record": ["AOTConfig", {}]}, []])]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_trace_of_another_form_is_traced_again(damage: str, folder: Path, traced: list[str]) -> None:
    x = torch.randn(2, 2, 4, 4)
    first = step(network(), x)
    cache = DiskCache(folder)
    kept = [e.path.stem for e in cache.entries() if (cache.read(e.path.stem) or b"").startswith(b'["[[')]
    assert kept
    for key in kept:
        cache.write(key, damage.encode())
    traced.clear()
    with pytest.warns(UserWarning, match="is no trace"):
        assert all(map(torch.equal, step(network(), x), first))
    assert "traced" in traced


def test_without_a_cache_nothing_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch, traced: list[str]) -> None:
    monkeypatch.setenv("TILE_CACHE", "off")
    x = torch.randn(2, 2, 4, 4)
    with warnings.catch_warnings(action="error"):
        step(network(), x)
        step(network(), x)
    assert traced.count("traced") == 2 and not list(folder.iterdir())


def test_a_graph_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    whole = store.graphs.written
    monkeypatch.setattr(graphs, "written", lambda graph: texts.append(whole(graph)) or texts[-1])
    step(network(), torch.randn(2, 2, 4, 4))
    assert len(texts) > 1
    assert all(whole(graphs.read(text)) == text for text in texts)


def test_inputs_may_be_called_as_functions_are() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("getitem")
    y = graph.call_function(torch.ops.aten.neg.default, (x,))
    x.meta["val"] = y.meta["val"] = torch.zeros(2)
    graph.output((y,))
    text = graphs.written(torch.fx.GraphModule(nn.Module(), graph))
    assert graphs.written(graphs.read(text)) == text


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.floats(allow_nan=False),
    st.sampled_from([torch.float32, torch.strided, torch.channels_last, torch.device("cpu"), torch.ops.aten.add.Tensor]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.integers(), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_values_come_back_as_they_were(value: object) -> None:
    found = unpacked(json.loads(json.dumps(packed(value))))
    assert found == value and repr(found) == repr(value)


@pytest.mark.parametrize("value", [object(), print, torch.ones(5000), Tensor.add, torch.Generator()])
def test_what_has_no_form_is_not_kept(value: object) -> None:
    with pytest.raises(Unkept):
        packed(value)


@pytest.mark.parametrize(
    "text",
    [{"operator": "os.system.x"}, {"torch": "load"}, {"type": "object"}, {"other": 1}, {}, {"record": ["print", {}]}],
)
def test_only_what_is_listed_is_made(text: object) -> None:
    with pytest.raises(BROKEN):
        unpacked(text)
