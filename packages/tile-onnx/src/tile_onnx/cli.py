"""`tile onnx`: models on the command line."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tile_runtime.cli.app import EXIT_CODES
from tile_runtime.cli.common import Device, Json, print_json, print_pairs
from tile_runtime.cli.errors import USAGE, CommandError, reported
from tile_runtime.cli.files import load_value, pairs, report_arrays

if TYPE_CHECKING:
    from tile_onnx.model import Model

File = Annotated[Path, typer.Argument(metavar="FILE", help="An ONNX model.")]
Inputs = Annotated[list[str], typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="An input: a .npy file or a number.")]  # fmt: skip
Outputs = Annotated[list[str], typer.Option("--output", "-o", metavar="NAME=FILE.npy", help="Where to save an output.")]
Shapes = Annotated[list[str], typer.Option("--shape", "-s", metavar="NAME=[SIZES]", help="Shape of an input, such as x=[1,3,224,224]; fixed ones may be left out.")]  # fmt: skip

_SHAPE = re.compile(r"(?P<name>.+?)=\[?(?P<sizes>[\d\s,]*)\]?")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Check, run, explain and time ONNX models.",
    epilog=EXIT_CODES,
)


def check(file: File, shape: Shapes = [], inputs: Inputs = [], device: Device = None, json: Json = False) -> None:  # noqa: B006
    """Show inputs and outputs, and what cannot run.

    Every node that has no converter is named; with shapes, every node that does not fit them.
    """
    model = _load(file, device)
    known = _shapes(model, shape, inputs)
    open = [a for a in model.inputs if a.shape is None or not all(isinstance(d, int) for d in a.shape)]
    if known or not open:
        model.check(known)
    arguments = {"inputs": model.inputs, "outputs": model.outputs}
    if json:
        print_json({k: [{"name": a.name, "dtype": a.dtype, "kind": a.kind, "shape": a.shape} for a in v] for k, v in arguments.items()})  # fmt: skip
        return
    from tile_onnx.explain import summary

    print("\n".join(summary(model.inputs, model.outputs, model.opsets, model.graph)))
    if known or not open:
        print("Every node runs on inputs of these shapes")
    else:
        print(f"Every node has a converter; --shape '{open[0].name}=[{open[0].example}]' checks that they fit as well")


def run(file: File, inputs: Inputs = [], outputs: Outputs = [], device: Device = None, json: Json = False) -> None:  # noqa: B006
    """Run a model on arrays from files.

    Outputs are saved where --output says, and summarised.
    """
    model = _load(file, device)
    files = pairs("the model", "output", [a.name for a in model.outputs], outputs)
    found = model.run(_values(model, inputs))
    tensors = {n: v for n, v in found.items() if hasattr(v, "dtype")}
    report_arrays(tensors, {n: f for n, f in files.items() if n in tensors}, json)


def explain(
    file: File,
    shape: Shapes = [],  # noqa: B006
    inputs: Inputs = [],  # noqa: B006
    device: Device = None,
    kernels: Annotated[bool, typer.Option("--kernels", help="Show each kernel, too.")] = False,
) -> None:
    """Show what runs on the device and on the host.

    Shapes that are not fixed are given by --shape.
    """
    model = _load(file, device)
    print(model.explain(_shapes(model, shape, inputs), kernels=kernels))


def bench(
    file: File,
    shape: Shapes = [],  # noqa: B006
    inputs: Inputs = [],  # noqa: B006
    device: Device = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="How long to measure.")] = 1.0,
    kernels: Annotated[int, typer.Option("--kernels", min=0, help="Show so many of the slowest kernels, too.")] = 0,
    json: Json = False,
) -> None:
    """Time a model on random inputs.

    The median and the best of many calls, and how long the first one took, which compiles.
    """
    model = _load(file, device)
    feeds = model.random_feeds(_shapes(model, shape, inputs))
    first = _timed(lambda: model.run(feeds))
    times: list[float] = []
    until = time.perf_counter() + seconds
    while not times or time.perf_counter() < until:
        times.append(_timed(lambda: model.run(feeds)))
    facts: dict[str, Any] = {
        "device": model.evaluator.device.id, "first_seconds": round(first, 6), "calls": len(times),
        "median_seconds": statistics.median(times), "best_seconds": min(times),
    }  # fmt: skip
    slowest = model.profile(feeds)[:kernels] if kernels else []
    if json:
        print_json(facts | {"kernels": [{"kernel": k.kernel, "seconds": k.seconds, "nodes": k.nodes} for k in slowest]})
        return
    print_pairs({
        "device": facts["device"], "first call": f"{first:.2f} s, with compiling", "calls": len(times),
        "median": f"{1e3 * facts['median_seconds']:.3f} ms", "best": f"{1e3 * min(times):.3f} ms",
    })  # fmt: skip
    for k in slowest:
        print(f"{k.seconds * 1e3:10.4f} ms  {k.kernel}  {'; '.join(k.nodes)}")


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _load(file: Path, device: str | None) -> Model:
    from tile_onnx.model import load

    return load(file, device)


def _values(model: Model, texts: Sequence[str]) -> dict[str, Any]:
    given = pairs("the model", "input", [a.name for a in model.inputs], texts)
    return {name: load_value(name, text) for name, text in given.items()}


def _shapes(model: Model, texts: Sequence[str], inputs: Sequence[str]) -> Mapping[str, Any]:
    """Shapes and values by input, as `Model.prepare` takes them."""
    names = [a.name for a in model.inputs]
    found: dict[str, Any] = {}
    for text in texts:
        parsed = _SHAPE.fullmatch(text)
        if parsed is None:
            raise CommandError(f"--shape {text!r} is not like {names[0] if names else 'x'}=[1,3,224,224]", USAGE)
        if parsed["name"] not in names:
            raise CommandError(f"the model has no input {parsed['name']!r}; its inputs are {', '.join(names)}")
        found[parsed["name"]] = tuple(int(n) for n in parsed["sizes"].split(",") if n.strip())
    return found | _values(model, inputs)


for _command, _example in (
    (check, "tile onnx check model.onnx --shape 'x=[1,3,224,224]'"),
    (run, "tile onnx run model.onnx --input x=x.npy --output y=y.npy --device llvm"),
    (explain, "tile onnx explain model.onnx --shape 'x=[1,3,224,224]'"),
    (bench, "tile onnx bench model.onnx --shape 'x=[1,3,224,224]' --kernels 10"),
):
    app.command(_command.__name__, epilog=f"Example: {_example}. {EXIT_CODES}")(reported(_command))
