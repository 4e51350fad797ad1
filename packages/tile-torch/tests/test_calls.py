"""How compiled functions take and give tensors: parameters, layouts, sizes, mutation, dtypes, other devices."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

import pytest
import tile_torch
import torch
from tile_ir.diagnostics import TileFallbackWarning
from tile_ir.program.nodes import Reshape
from tile_opt.program.permutations import order_of
from tile_torch.backend import Options
from tile_torch.executable import Executable
from tile_torch.registry import present
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch_networks import ResNet, mlp


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Callable[..., object], **options: object) -> Callable[..., object]:
    return torch.compile(function, backend="tile", options=options)


def agree(found: object, wanted: object, atol: float = 1e-5) -> bool:
    assert isinstance(found, Tensor) and isinstance(wanted, Tensor)
    assert found.dtype is wanted.dtype and found.shape == wanted.shape
    return torch.allclose(found, wanted, atol=atol, rtol=1e-4)


# --- parameters ------------------------------------------------------------------------------------------


def scaled(model: nn.Sequential) -> None:
    model[0].weight.mul_(2)


def moved(model: nn.Sequential) -> None:
    model[0].weight.data = torch.randn_like(model[0].weight)


def loaded(model: nn.Sequential) -> None:
    model.load_state_dict(mlp(8, 16, 4).state_dict())


def assigned(model: nn.Sequential) -> None:
    model.load_state_dict(mlp(8, 16, 4).state_dict(), assign=True)


@pytest.mark.parametrize("change", [scaled, moved, loaded, assigned])
def test_changes_of_parameters_are_followed(change: Callable[[nn.Sequential], None]) -> None:
    model, x = mlp(8, 16, 4), torch.randn(3, 8)
    assert isinstance(model, nn.Sequential)
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(3):
            assert agree(fast(x), model(x))
            change(model)
        assert agree(fast(x), model(x))


def test_modules_that_share_a_graph_keep_their_own_parameters() -> None:
    blocks, x = [mlp(8, 16, 8) for _ in range(3)], torch.randn(2, 8)
    wanted = [block(x) for block in blocks]
    for block in blocks:
        block.compile(backend="tile")
    with torch.no_grad():
        for _ in range(2):
            assert all(agree(block(x), y.detach()) for block, y in zip(blocks, wanted, strict=True))


def test_buffers_are_updated_in_training_and_read_in_evaluation() -> None:
    ours, theirs, x = ResNet((1,), 4, classes=3), ResNet((1,), 4, classes=3), torch.randn(2, 3, 16, 16)
    theirs.load_state_dict(ours.state_dict())
    fast = compiled(ours)
    for _ in range(2):
        fast(x), theirs(x)
    for found, wanted in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert torch.allclose(found, wanted, atol=1e-6)
    ours.eval(), theirs.eval()
    with torch.no_grad():
        assert agree(fast(x), theirs(x))


# --- layouts and memory ----------------------------------------------------------------------------------


def test_layouts_are_those_of_eager() -> None:
    model = nn.Conv2d(3, 4, 3)
    images = torch.randn(2, 3, 8, 8)
    fast = compiled(model)
    for x in (images, images.to(memory_format=torch.channels_last), images.transpose(2, 3), images[:, :, ::2]):
        with torch.no_grad():
            found, wanted = fast(x), model(x)
        assert agree(found, wanted) and isinstance(found, Tensor)
        assert found.stride() == wanted.stride()


def test_contiguous_tensors_are_not_copied() -> None:
    from tile_torch.dtypes import ordered_array, to_tensor

    x = torch.randn(2, 3, 4, 5)
    assert ordered_array(x, (0, 1, 2, 3)).__array_interface__["data"][0] == x.data_ptr()
    last = x.to(memory_format=torch.channels_last)
    array = ordered_array(last, (0, 2, 3, 1))
    assert array.flags.c_contiguous and to_tensor(array).data_ptr() == last.data_ptr()


def mutated(x: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    b.add_(x)
    y = x.view(-1)
    x.mul_(2)
    return y, b[0], x.t(), x


def test_mutation_and_aliases_are_those_of_eager() -> None:
    ours, theirs = [[torch.arange(12.0).view(3, 4), torch.ones(3, 4)] for _ in range(2)]
    found, wanted = compiled(mutated)(*ours), mutated(*theirs)
    assert isinstance(found, tuple)
    assert all(agree(f, w) for f, w in zip((*found, *ours), (*wanted, *theirs), strict=True))
    assert found[0].data_ptr() == ours[0].data_ptr() and found[3] is ours[0]
    ours[0].zero_()
    assert not found[0].any() and not found[2].any()


def test_results_of_two_calls_share_no_memory() -> None:
    fast = compiled(lambda x: (torch.ones(3), x + 1))
    first, second = fast(torch.zeros(3)), fast(torch.zeros(3))
    assert isinstance(first, tuple) and isinstance(second, tuple)
    first[0].zero_(), first[1].zero_()
    assert second[0].all() and second[1].all()


# --- sizes -----------------------------------------------------------------------------------------------


def test_open_sizes() -> None:
    def function(x: Tensor, n: int) -> Tensor:
        return torch.cat([x[:, :n], x.flip(1)], 1).reshape(-1, x.shape[0]).cumsum(0)

    fast = torch.compile(function, backend="tile", dynamic=True)
    for rows, columns in ((4, 2), (6, 3), (5, 1)):
        x = torch.randn(rows, rows + 1)
        assert agree(fast(x, columns), function(x, columns))


def test_a_program_is_the_same_in_the_disk_cache_whichever_sizes_are_open(caplog: pytest.LogCaptureFixture) -> None:
    def between(x: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(x @ y, -1) * 0.8125

    x, y = torch.randn(3, 5), torch.randn(5, 7)
    compiled(between)(x, y)
    torch._dynamo.reset()
    with caplog.at_level(logging.INFO, logger="tile.cache"):
        torch.compile(between, backend="tile", dynamic=True)(x, y)
    told = [r.getMessage() for r in caplog.records if r.name == "tile.cache"]
    assert told == ["'composition' for llvm:0 is in the disk cache"]


def test_open_sizes_in_training() -> None:
    model = mlp(8, 16, 4)
    fast = torch.compile(model, backend="tile", dynamic=True)
    for shape in (
        (3, 8),
        (5, 8),
        (3, 5, 8),
        (2, 4, 8),
    ):  # of three dimensions what is saved is a view whose sizes are open
        x = torch.randn(shape, requires_grad=True)
        fast(x).square().sum().backward()
        found, x.grad = x.grad, None
        model(x).square().sum().backward()
        assert agree(found, x.grad)


def test_numbers_that_change_from_call_to_call() -> None:
    """PyTorch makes tensors of them, with operators that occur nowhere else."""

    def function(x: Tensor, n: float) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + n) * (n * 2) + n / 3 - n**2

    fast = torch.compile(function, backend="tile", dynamic=True)
    for rows, number in ((4, 0.5), (6, 0.7), (6, 1.25)):
        x = torch.randn(rows, 8, requires_grad=True)
        found, expected = (f(x, number) for f in (fast, function))
        assert agree(found.detach(), expected.detach())
        slopes = [torch.autograd.grad(y.sum(), x)[0] for y in (found, expected)]
        assert agree(*slopes)


def test_what_has_no_elements() -> None:
    fast = compiled(lambda x: (x.sum(0), x.relu(), torch.cat([x, x])))
    found = fast(torch.zeros(0, 3))
    assert isinstance(found, tuple)
    assert [tuple(y.shape) for y in found] == [(3,), (0, 3), (0, 3)] and not found[0].any()


# --- dtypes, devices, options ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floats(dtype: torch.dtype) -> None:
    model, x = mlp(8, 16, 4).to(dtype), torch.randn(3, 8, dtype=dtype)
    with torch.no_grad():
        assert agree(compiled(model)(x), model(x), atol=1e-12 if dtype is torch.float64 else 2e-2)


def test_autocast() -> None:
    model, x = mlp(8, 16, 4), torch.randn(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = compiled(model)(x), model(x)
    assert agree(found, wanted, atol=2e-2)


@pytest.mark.parametrize("train", [False, True])
def test_autocast_of_networks_with_batch_normalisation(train: bool) -> None:
    """Whose statistics PyTorch gives in the dtype that autocast chose, where nothing of them is kept."""
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train(train), torch.randn(2, 3, 8, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, wanted = compiled(model)(x), model(x)
    assert agree(found, wanted, atol=5e-2)


@pytest.mark.parametrize("shape", [(7,), (0,), ()])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integers_and_truth_values(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x + 1, x * 0.5, x == 1, x.sum(), ~(x > 0), x / 2

    x = torch.randint(0, 2, shape).to(dtype)
    found = compiled(function)(x)
    assert isinstance(found, tuple)
    assert all(agree(f, w) for f, w in zip(found, function(x), strict=True))


def test_the_slow_device_agrees() -> None:
    model, x = mlp(4, 6, 2), torch.randn(2, 4)
    with torch.no_grad():
        assert agree(compiled(model, device="interp")(x), model(x))


def test_operators_that_tile_lacks_run_in_pytorch_where_asked_for() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        q = torch.special.bessel_j0(torch.relu(x @ x))
        y = (q * 2).sum(0) + 1
        return y.tanh(), torch.fft.fft(y).abs()

    x = torch.randn(5, 5)
    with pytest.warns(TileFallbackWarning, match="bessel_j0") as caught:
        found = compiled(function, fallback="eager")(x)
    assert len([w for w in caught if w.category is TileFallbackWarning]) == 1
    assert isinstance(found, tuple)
    assert all(agree(f, w) for f, w in zip(found, function(x), strict=True))


def test_explain_shows_programs_and_where_kernels_come_from() -> None:
    model, x = nn.Sequential(mlp(8, 16), nn.GELU()), torch.randn(3, 8)
    fast = compiled(model)

    def step() -> None:
        fast(x).square().sum().backward()  # type: ignore[attr-defined]

    with warnings.catch_warnings(), torch.no_grad():
        text = tile_torch.explain(fast, x, kernels=True)
    assert "1. A program of" in text and "with 2 parameters that it keeps" in text
    assert "addmm (0.0)" in text
    assert "2. A program of" in tile_torch.explain(step)
    assert "nothing on Tile" in tile_torch.explain(model, x)


def test_explain_says_what_pytorch_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.GRU(3, 4, batch_first=True)), torch.randn(2, 5, 3)
    assert "allow_rnn=True" in tile_torch.explain(compiled(model), x)
    torch._dynamo.reset()
    monkeypatch.setattr(torch._dynamo.config, "allow_rnn", True)
    found, wanted = compiled(model)(x), model(x)
    assert all(agree(f, w) for f, w in zip(found, wanted, strict=True))  # type: ignore[call-overload]


def test_explain_takes_an_explanation_where_pytorch_has_no_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Call not traced\n  Explanation: a layer is refused\n"
    monkeypatch.setitem(torch._dynamo.utils.counters, "graph_break", {said: 1})
    assert tile_torch.explain(torch.sin, torch.ones(2)).endswith("as it is: Call not traced. a layer is refused")


def test_operators_that_a_release_of_pytorch_lacks_are_left_out() -> None:
    assert present("aten.sin.default") == [torch.ops.aten.sin.default]
    assert present("aten.sin.of_another_release") == present("aten.of_another_release.default") == []


def test_derivatives_of_derivatives_are_taken_inside() -> None:
    model, x = mlp(3, 8, 1), torch.randn(5, 3, requires_grad=True)

    def penalty(x: Tensor) -> Tensor:
        return torch.func.grad(lambda x: model(x).tanh().sum())(x).square().sum()

    (found,), (wanted,) = (torch.autograd.grad(f(x), x) for f in (compiled(penalty), penalty))  # type: ignore[arg-type]
    assert agree(found, wanted)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(compiled(model)(x).sum(), x, create_graph=True)[0].sum().backward()  # type: ignore[attr-defined]


# --- precision ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "pytorch", "reduced"),
    [(None, "highest", False), (None, "high", True), (True, "highest", True), (False, "high", False)],
)
def test_float32_is_rounded_where_the_option_or_pytorch_says_so(
    asked: bool | None, pytorch: str, reduced: bool
) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(pytorch)
    try:
        options = Options("null:0", reduced_precision=asked).evaluator().options
    finally:
        torch.set_float32_matmul_precision(before)
    assert options.reduced_precision is reduced
    assert options.short_products


@pytest.mark.parametrize(("size", "stride"), [((6, 20), (20, 1)), ((4, 30), (1, 4)), ((2, 5, 12), (60, 1, 5))])
def test_strides_without_gaps_are_a_shape_of_the_same_elements(size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)

    def strided(x: Tensor) -> Tensor:
        return x.as_strided(size, stride)

    graph = make_fx(strided, tracing_mode="fake")(x)
    composition = Executable(graph, Options(device="llvm").evaluator()).composition()
    assert composition is not None
    assert all(isinstance(op, Reshape) or order_of(op, composition.program.types()) for op in composition.program.ops)
    assert agree(compiled(strided)(x), strided(x))
