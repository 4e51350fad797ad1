"""``python integration/bench/onnx_gpu.py``: ONNX models on an OpenCL GPU beside the same networks in PyTorch on CUDA.

Each network is written once and made twice: as an ONNX model with seeded weights, which `tile_onnx` loads, and as
PyTorch calls. Times are the device's own, so that the host counts on neither side: of PyTorch's a captured graph from end
to end, of ours the kernels without what passes between them (see `on_gpu.device_seconds`); in float32, or with ``--tf32``
in TensorFloat-32 where both may use it. ``--slowest N`` lists the kernels that take longest. Compiling takes much longer
than measuring: ``--prepare`` only compiles, so that a later run finds all on disk.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import tile_onnx
import tile_runtime as tile
import torch
import torch.nn.functional as F
from on_gpu import allow_tf32, captured, device_seconds
from onnx import TensorProto, helper, numpy_helper

SAMPLES = 7


@dataclass
class Twin:
    """A network under construction, in both forms; values are names."""

    shape: tuple[int, ...]
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))
    weights: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    nodes: list[Any] = field(default_factory=list[Any])
    calls: list[tuple[Callable[..., Any], Sequence[str], str]] = field(default_factory=list[Any])
    made: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """The shapes of a run's values."""

    def weight(self, *shape: int, fan: int = 0, one: bool = False) -> str:
        """Normal values of the variance that keeps activations' size; ones and zeros for scales and shifts."""
        name = f"w{len(self.weights)}"
        drawn = torch.randn(shape, generator=self.generator) * math.sqrt(2 / fan) if fan else torch.zeros(shape)
        self.weights[name] = drawn + 1 if one else drawn
        return name

    def op(self, kind: str, inputs: Sequence[str], call: Callable[..., Any], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        self.calls.append((call, inputs, name))
        return name

    def model(self) -> onnx.ModelProto:
        """The ONNX model of all operations; the last one's value is the output."""
        tensors = [numpy_helper.from_array(w.numpy(), name) for name, w in self.weights.items()]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        outputs = [helper.make_tensor_value_info(self.calls[-1][2], TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "twin", inputs, outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    def run(self, x: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
        values = {**weights, "x": x}
        for call, inputs, name in self.calls:
            values[name] = call(*(values[n] for n in inputs))
            self.made[name] = tuple(values[name].shape)
        return values[self.calls[-1][2]]

    # --- layers ---

    def conv(self, x: str, ci: int, co: int, size: int, stride: int = 1, group: int = 1, act: str = "Relu") -> str:
        """A convolution, its batch normalisation, and an activation."""
        pad = size // 2
        kernel = self.weight(co, ci // group, size, size, fan=ci // group * size * size)
        y = self.op(
            "Conv", [x, kernel], lambda x, w: F.conv2d(x, w, None, stride, pad, 1, group),
            strides=[stride] * 2, pads=[pad] * 4, group=group, kernel_shape=[size] * 2,
        )  # fmt: skip
        scale, shift, mean, var = (self.weight(co, one=k in (0, 3)) for k in range(4))
        y = self.op(
            "BatchNormalization", [y, scale, shift, mean, var],
            lambda y, s, b, m, v: F.batch_norm(y, m, v, s, b, False, 0.0, 1e-5),
        )  # fmt: skip
        return self.active(y, act)

    def active(self, x: str, act: str) -> str:
        if act == "Relu":
            return self.op("Relu", [x], F.relu)
        if act == "Relu6":
            low, high = (self._scalar(v) for v in (0.0, 6.0))
            return self.op("Clip", [x, low, high], lambda x, *_: F.relu6(x))
        return x

    def add(self, a: str, b: str) -> str:
        return self.op("Add", [a, b], torch.add)

    def dense(self, x: str, ci: int, co: int) -> str:
        """``x W + b`` over the last axis."""
        w, b = self.weight(ci, co, fan=2 * ci), self.weight(co)
        return self.add(self.op("MatMul", [x, w], torch.matmul), b)

    def norm(self, x: str, size: int) -> str:
        scale, shift = self.weight(size, one=True), self.weight(size)
        return self.op(
            "LayerNormalization", [x, scale, shift], lambda x, s, b: F.layer_norm(x, (size,), s, b, 1e-5), axis=-1
        )

    def pooled(self, x: str, channels: int, classes: int) -> str:
        """The mean over the image, and what it is taken for."""
        y = self.op("GlobalAveragePool", [x], lambda x: x.mean((2, 3), keepdim=True))
        y = self.op("Flatten", [y], lambda y: y.flatten(1))
        return self.dense(y, channels, classes)

    def _scalar(self, value: float) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = torch.tensor(value)
        return name


def resnet50(batch: int = 32) -> Twin:
    net = Twin((batch, 3, 224, 224))
    x = net.conv("x", 3, 64, 7, 2)
    x = net.op("MaxPool", [x], lambda x: F.max_pool2d(x, 3, 2, 1), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner, outer = 64 << stage, 256 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = net.conv(net.conv(x, channels, inner, 1), inner, inner, 3, stride)
            y = net.conv(y, inner, outer, 1, act="")
            skip = x if block else net.conv(x, channels, outer, 1, stride, act="")
            x, channels = net.active(net.add(y, skip), "Relu"), outer
    net.pooled(x, channels, 1000)
    return net


def mobilenet(batch: int = 32) -> Twin:
    """Inverted residuals with depthwise convolutions."""
    net = Twin((batch, 3, 224, 224))
    x, channels = net.conv("x", 3, 32, 3, 2, act="Relu6"), 32
    plan = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for widen, outer, blocks, first in plan:
        for block in range(blocks):
            inner, stride = channels * widen, 1 if block else first
            y = net.conv(x, channels, inner, 1, act="Relu6") if widen > 1 else x
            y = net.conv(y, inner, inner, 3, stride, inner, "Relu6")
            y = net.conv(y, inner, outer, 1, act="")
            x, channels = net.add(x, y) if stride == 1 and channels == outer else y, outer
    net.pooled(net.conv(x, channels, 1280, 1, act="Relu6"), 1280, 1000)
    return net


def transformer(batch: int = 16, length: int = 128, size: int = 512, heads: int = 8, layers: int = 6) -> Twin:
    """An encoder: norms first, GELU between."""
    net, each = Twin((batch, length, size)), size // heads
    x = "x"
    for _ in range(layers):
        h = net.norm(x, size)
        q, k, v = (_heads(net, net.dense(h, size, size), batch, length, heads, each) for _ in range(3))
        turned = net.op("Transpose", [k], lambda k: k.transpose(2, 3), perm=[0, 1, 3, 2])
        scale = net._scalar(1 / math.sqrt(each))  # pyright: ignore[reportPrivateUsage]
        scores = net.op("Mul", [net.op("MatMul", [q, turned], torch.matmul), scale], torch.mul)
        y = net.op("MatMul", [net.op("Softmax", [scores], lambda s: s.softmax(-1), axis=-1), v], torch.matmul)
        y = net.op("Transpose", [y], lambda y: y.permute(0, 2, 1, 3), perm=[0, 2, 1, 3])
        shape = _shape(net, batch, length, size)
        y = net.op("Reshape", [y, shape], lambda y, _: y.reshape(batch, length, size))
        x = net.add(x, net.dense(y, size, size))
        h = net.op("Gelu", [net.dense(net.norm(x, size), size, 4 * size)], F.gelu)
        x = net.add(x, net.dense(h, 4 * size, size))
    net.norm(x, size)
    return net


def _heads(net: Twin, x: str, batch: int, length: int, heads: int, each: int) -> str:
    y = net.op(
        "Reshape", [x, _shape(net, batch, length, heads, each)], lambda x, _: x.reshape(batch, length, heads, each)
    )
    return net.op("Transpose", [y], lambda y: y.permute(0, 2, 1, 3), perm=[0, 2, 1, 3])


def _shape(net: Twin, *sizes: int) -> str:
    name = f"w{len(net.weights)}"
    net.weights[name] = torch.tensor(sizes, dtype=torch.int64)
    return name


NETWORKS: Mapping[str, Callable[[], Twin]] = {
    "resnet50, batch 32": resnet50,
    "mobilenet, batch 32": mobilenet,
    "transformer 16 x 128 x 512": transformer,
    "resnet50, batch 1": lambda: resnet50(1),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="opencl")
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--tf32", action="store_true", help="factors of products may be rounded")
    parser.add_argument("--prepare", action="store_true", help="compile, and measure nothing")
    parser.add_argument("--slowest", type=int, default=0, help="kernels to list")
    options = parser.parse_args()
    evaluator = tile.Evaluator(tile.device(options.device), reduced_precision=options.tf32, fold_scales=True)
    ratios: list[float] = []
    for name, make in NETWORKS.items():
        if options.only in name:
            ready = Ready.of(name, make(), evaluator)
            if not options.prepare:
                ratios.append(ready.measured(options.slowest))
    if ratios:
        print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, worst {min(ratios):.2f}")
    return 0


@dataclass(frozen=True)
class Ready:
    """A network that has run once."""

    name: str
    net: Twin
    model: Any
    x: torch.Tensor
    found: Any

    @staticmethod
    def of(name: str, net: Twin, evaluator: tile.Evaluator) -> Ready:
        start = time.perf_counter()
        x = torch.randn(net.shape, generator=torch.Generator().manual_seed(1))
        model = tile_onnx.load(net.model(), evaluator)
        (found,) = model.run({"x": x.numpy()}).values()
        print(f"{name}: ready after {time.perf_counter() - start:.1f} s", flush=True)
        return Ready(name, net, model, x, found)

    def measured(self, slowest: int) -> float:
        """PyTorch's time over ours."""
        tf32 = self.model.evaluator.reduced_precision
        allow_tf32(tf32)
        x = {"x": self.x.numpy()}
        ours = sorted(device_seconds(lambda: self.model.run(x)) for _ in range(SAMPLES))[SAMPLES // 2]
        theirs, wanted = min((_torch(self.net, self.x, last) for last in (False, True)), key=lambda pair: pair[0])
        error = float(np.abs(self.found - wanted).max() / np.abs(wanted).max())
        kernels = self.model.profile(x) if slowest else ()
        print(f"{self.name:28} tf32 {tf32!s:5} ours {ours * 1e3:8.3f} ms  torch {theirs * 1e3:8.3f} ms  "
              f"ratio {theirs / ours:5.2f}  error {error:.1e}", flush=True)  # fmt: skip
        for kernel in sorted(kernels, key=lambda k: -k.seconds)[:slowest]:
            print(f"    {kernel.seconds * 1e6:9.1f} us", *(_described(self.net, n) for n in kernel.nodes), flush=True)
        return theirs / ours


def _described(net: Twin, name: str) -> str:
    """A node: its operator, the shapes that it takes, and the one that it gives."""
    node = next(n for n in net.nodes if n.output[0] == name)
    taken = [
        net.made.get(n) or (tuple(net.weights[n].shape) if n in net.weights else net.shape) for n in node.input[:2]
    ]
    return f"{node.op_type}{taken}->{net.made[name]}"


def _torch(net: Twin, x: torch.Tensor, channels_last: bool) -> tuple[float, Any]:
    """Seconds of a captured run, in either layout, and its result."""
    form = torch.channels_last if channels_last and x.ndim == 4 else torch.contiguous_format
    torch.backends.cudnn.benchmark = True
    weights = {n: w.cuda().to(memory_format=form) if w.ndim == 4 else w.cuda() for n, w in net.weights.items()}
    given = x.cuda().to(memory_format=form)
    sample, found = captured(lambda: net.run(given, weights))
    seconds = sorted(sample() for _ in range(SAMPLES))
    return seconds[SAMPLES // 2], found.cpu().numpy()


if __name__ == "__main__":
    raise SystemExit(main())
