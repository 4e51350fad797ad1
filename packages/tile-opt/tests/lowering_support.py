"""Running kernel lists on the semtree interpreter, and comparing with the Stripe interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tile_ir.kernels import BufferKind, KernelList, Step, StepKind, Window
from tile_ir.semtree.interpret import launch
from tile_ir.semtree.nodes import Function
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Program
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.verify import verify as verify_stripe
from tile_ir.target import HardwareSettings, Target
from tile_opt.lowering import lower

TARGET = Target("test", HardwareSettings())


def execute(kernels: KernelList, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run every step in order; buffers start out poisoned, temporaries share their arena."""
    constants = {c.name: c.data for c in kernels.constants}
    arenas = [np.full(max(size, 1), 0xA5, np.uint8) for size in kernels.arenas]
    arrays: list[Any] = []
    for buffer in kernels.buffers:
        dtype = buffer.dtype.numpy
        if buffer.kind is BufferKind.TEMP:
            arrays.append(arenas[buffer.arena][buffer.offset : buffer.offset + buffer.bytes].view(dtype))
        elif buffer.kind is BufferKind.CONST:
            arrays.append(np.frombuffer(constants[buffer.name], dtype).copy())
        elif buffer.kind is BufferKind.INPUT:
            arrays.append(np.ascontiguousarray(inputs[buffer.name], dtype).reshape(-1).copy())
        else:
            arrays.append(np.full(buffer.bytes, 0xA5, np.uint8).view(dtype))
    _run(kernels, kernels.steps, dict(enumerate(arrays)))
    return {b.name: arrays[b.id].reshape(b.shape) for b in kernels.buffers if b.kind is BufferKind.OUTPUT}


def _run(kernels: KernelList, steps: Sequence[Step], arrays: Mapping[int, Any]) -> None:
    """Run steps on the elements of each buffer."""
    for number, step in enumerate(steps):
        assert all(d < number for d in step.deps)
        run = [arrays[b] for b in step.buffers]
        if step.kind is StepKind.FILL:
            run[0][:] = 0
        elif step.kind is StepKind.COPY:
            run[0][:] = run[1]
        elif step.loop is not None:
            for t in range(step.loop.count):
                _run(kernels, step.loop.steps, {**arrays, **{w.id: _seen(w, t, arrays) for w in step.loop.windows}})
        else:
            kernel = kernels.kernels[step.kernel]
            assert kernel.function is not None
            params = kernel.function.params
            launch(
                kernel.function, kernel.groups, [x.view(p.type.dtype.numpy) for x, p in zip(run, params, strict=True)]
            )


def _seen(window: Window, round: int, arrays: Mapping[int, Any]) -> Any:
    base, start = window.at(round)
    return arrays[base].view(np.uint8)[start : start + window.bytes].view(arrays[base].dtype)


def random_inputs(program: Program, seed: int = 0) -> dict[str, Any]:
    """Small random values for every input."""
    rng = np.random.default_rng(seed)
    inputs: dict[str, Any] = {}
    for name in program.inputs:
        type = program.entry.ref(name).type
        if type.dtype.is_float:
            values = rng.standard_normal(type.sizes)
        else:
            values = rng.integers(0, 2 if type.dtype.value == "bool" else 9, type.sizes)
        inputs[name] = values.astype(type.dtype.numpy)
    return inputs


def _typed(program: Program, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: np.asarray(v).astype(program.entry.ref(n).type.dtype.numpy) for n, v in inputs.items()}


def check(
    program: Program | str,
    inputs: Mapping[str, Any] | None = None,
    target: Target = TARGET,
    exact: bool = False,
    reference: Program | None = None,
    expected: Mapping[str, Any] | None = None,
) -> KernelList:
    """Lower, run with every check, and compare every output with what the Stripe interpreter makes of the `reference`.

    A scheduled program has its kernels' meaning: where these are right, it need not be interpreted itself.
    """
    if isinstance(program, str):
        program = parse_program(program)
    verify_stripe(program)
    kernels = lower(program, target)
    values = random_inputs(program) if inputs is None else _typed(program, inputs)
    right = interpret.run(reference or program, values) if expected is None else expected
    for name, value in execute(kernels, values).items():
        if exact or not program.entry.ref(name).type.dtype.is_float:
            np.testing.assert_array_equal(value, right[name], err_msg=name)
        else:
            np.testing.assert_allclose(value, right[name], rtol=1e-5, atol=1e-6, err_msg=name)
    return kernels


def wrap(header: str, buffers: Mapping[str, str], kernels: str, temps: Mapping[str, str] | None = None) -> str:
    """A program text: `buffers` maps "in A" or "out C" to a type; `kernels` are statements of main."""

    def zeros(type: str) -> str:
        return ", ".join("0" for _ in type[type.index("(") + 1 : type.index(")")].split(",") if _.strip())

    entry = "\n".join(f"none {n.split()[1]}[{zeros(t)}] {t}" for n, t in buffers.items())
    main = "\n".join(f"{n}[{zeros(t)}] {t}" for n, t in buffers.items())
    main += "\n" + "\n".join(f"none {n}[{zeros(t)}] {t}" for n, t in (temps or {}).items())
    return f"{header}\nblock [] ( // program\n{entry}\n) {{ block [] ( // main\n{main}\n) {{\n{kernels}\n}} }}\n"


def only(kernels: KernelList) -> Function:
    """The function of the one kernel."""
    (kernel,) = kernels.kernels
    assert kernel.function is not None
    return kernel.function


def copy(indexes: str, head: str, access_in: str, access_out: str, n: str = "24:1", **options: str) -> str:
    """A kernel that copies A to B through one block."""
    rank = n.count(":")
    zeros, ones = ",".join("0" * rank), ", ".join(f"1:{d.split(':')[1]}" for d in n.split(","))
    return wrap(
        "inputs A\noutputs B",
        {"in A": f"f32({n})", "out B": f"f32({n})"},
        f"""
block [{options.get("outer", "")}] ( in A[{zeros}] f32({n}) out B[{zeros}] f32({n}) ) {{
  block [{indexes}] ( {head} in A[{access_in}] f32({ones}) out B[{access_out}] f32({ones}) ) {{
    $a = load(A) $b = neg($a) B = store($b)
  }}
}}""",
    )
