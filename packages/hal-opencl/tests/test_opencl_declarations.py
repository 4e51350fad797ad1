"""Programs on PoCL declare what they call, in place of the declarations that it puts before each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyopencl as cl
import pytest
from hal_opencl import binding
from hal_opencl.compiler import OPTIONS
from hal_opencl.emit.declarations import FORMS, LEFT_OUT, declared

MADE = "as_float as_int4 convert_int4 convert_ushort convert_char2_sat_rtz vload_half vload_half4 vload8 vstore16 vstore_half_rte vstore_half8_rte"
KERNEL = "kernel void f(global float *p) {{ p[get_global_id(0)] = {}; }}"
WIDE = "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"


@pytest.fixture
def pocl(device: Any) -> Any:
    if not device.compiler._context.declares_too_much:
        pytest.skip("declares nothing itself")
    return device


@pytest.fixture
def built(pocl: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """The texts and options that the driver gets."""
    seen: list[tuple[str, tuple[str, ...]]] = []
    real = binding.build_source

    def build_source(context: Any, device: Any, text: str, options: Sequence[str]) -> Any:
        seen.append((text, tuple(options)))
        return real(context, device, text, options)

    monkeypatch.setattr(binding, "build_source", build_source)
    return seen


@pytest.mark.parametrize("wide", ["", "double "])
def test_no_declaration_contradicts_those_of_the_device(pocl: Any, wide: str) -> None:
    """Of all that are known: another result for the same arguments would be an error."""
    text = f"{WIDE}// {wide}{MADE} {' '.join(FORMS)}\n{KERNEL.format('1.0f')}"
    info = pocl.compiler._context
    with_its_own = binding.build_source(info.raw, info.info.raw, declared(text) + text, OPTIONS)
    alone = binding.build_source(info.raw, info.info.raw, declared(text) + text, (*OPTIONS, LEFT_OUT))
    assert binding.binary_of(with_its_own) and binding.binary_of(alone)


def test_a_program_declares_what_it_calls_and_no_more(pocl: Any, built: list[Any]) -> None:
    pocl.compiler._start(KERNEL.format("exp(p[0]) + 1.25f"), OPTIONS, None).result()
    ((text, options),) = built
    assert LEFT_OUT in options and "float4 exp(float4" in text and "double" not in text and " cos(" not in text


def test_what_is_not_known_is_the_devices_to_declare(pocl: Any, built: list[Any]) -> None:
    pocl.compiler._start(KERNEL.format("lgamma(p[0]) + 1.25f"), OPTIONS, None).result()
    assert [LEFT_OUT in options for _, options in built] == [True, False]


def test_errors_have_the_lines_of_the_text(pocl: Any) -> None:
    with pytest.raises(binding.BuildError, match=r":2:"):
        info = pocl.compiler._context
        text = "// the first\n" + KERNEL.format("nowhere")
        binding.build_source(info.raw, info.info.raw, declared(text) + text, (*OPTIONS, LEFT_OUT))


def test_types_and_constants_are_the_devices(pocl: Any) -> None:
    """The compiler has nothing to warn of, such as macros that are defined anew."""
    text = KERNEL.format("INFINITY + FLT_MAX * as_uint4((double2)(p[0])).x + (float)sizeof(size_t)")
    info = pocl.compiler._context
    program = binding.build_source(info.raw, info.info.raw, declared(text) + text, (*OPTIONS, LEFT_OUT))
    assert not program.get_build_info(info.info.raw, cl.program_build_info.LOG).strip("\0\n ")


def test_doubles_are_computed_as_such_where_only_a_function_names_them() -> None:
    assert "double exp(double x)" in declared("exp(as_double(1L))")
