"""The table of functions as any caller of PJRT sees it, without JAX between."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from tile_jax.pjrt import handles
from tile_jax.pjrt.api import HANDLERS, table
from tile_jax.pjrt.events import DONE
from tile_jax.pjrt.structs import SLOTS, STRUCTS

MODULE = b"""
module @doubled {
  func.func @main(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.add %a, %a : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
"""
UNIMPLEMENTED, INVALID_ARGUMENT, INTERNAL = 12, 3, 13


class Failed(Exception):
    """An error that a function gave: its code, and what it says."""


def ask(name: str, **fields: Any) -> Any:
    """Calls a function of the table; its arguments, with what it wrote to them. Failed for an error."""
    args = STRUCTS[name](struct_size=ctypes.sizeof(STRUCTS[name]), **fields)
    error = getattr(table(), name)(ctypes.addressof(args))
    if not error:
        return args
    code = ask("Error_GetCode", error=error).code
    told = ask("Error_Message", error=error)
    words = ctypes.string_at(told.message, told.message_size).decode()
    ask("Error_Destroy", error=error)
    raise Failed(code, words)


@pytest.fixture
def client() -> Any:
    found = ask("Client_Create").client
    yield found
    ask("Client_Destroy", client=found)


def placed(client: int, array: np.ndarray[Any, Any]) -> int:
    device = handles.read_numbers(ask("Client_Devices", client=client).devices, 1)[0]
    dims = handles.Array(array.shape)
    made = ask(
        "Client_BufferFromHostBuffer", client=client, data=array.ctypes.data, type=11, dims=dims.address,
        num_dims=array.ndim, device=device,
    )  # fmt: skip
    return made.buffer


def compiled(client: int, code: bytes, form: bytes = b"mlir") -> int:
    text, name = handles.Text(code), handles.Text(form)
    program = STRUCTS["Program"](code=text.address, code_size=text.size, format=name.address, format_size=name.size)
    return ask("Client_Compile", client=client, program=ctypes.addressof(program)).executable


def test_a_program_from_text_to_numbers(client: int) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = handles.alive()
    buffer, executable = placed(client, array), compiled(client, MODULE)
    given, made = (ctypes.c_uint64 * 1)(buffer), (ctypes.c_uint64 * 1)()
    rows, out = ((ctypes.c_uint64 * 1)(ctypes.addressof(a)) for a in (given, made))
    ask(
        "LoadedExecutable_Execute", executable=executable, num_devices=1, num_args=1,
        argument_lists=ctypes.addressof(rows), output_lists=ctypes.addressof(out),
    )  # fmt: skip
    found = np.empty_like(array)
    assert ask("Buffer_ToHostBuffer", src=made[0]).dst_size == array.nbytes
    ask("Buffer_ToHostBuffer", src=made[0], dst=found.ctypes.data, dst_size=found.nbytes)
    np.testing.assert_array_equal(found, 2 * array)
    for name, handle in (("Buffer", buffer), ("Buffer", made[0]), ("LoadedExecutable", executable)):
        field = "buffer" if name == "Buffer" else "executable"
        ask(f"{name}_Destroy", **{field: handle})
    assert handles.alive() == before


@pytest.mark.parametrize(
    ("code", "form", "says"),
    [
        (MODULE, b"hlo", "reads StableHLO"),
        (b"module {", b"mlir", "Unable to parse"),
        (MODULE.replace(b"f32", b"i4"), b"mlir", "no tensors of i4"),
        (MODULE.replace(b"2x3xf32", b"?x3xf32"), b"mlir", "size that is not known"),
    ],
)
def test_programs_that_are_none(client: int, code: bytes, form: bytes, says: str) -> None:
    with pytest.raises(Failed, match=says):
        compiled(client, code, form)


def test_arrays_that_do_not_fit_are_refused(client: int) -> None:
    array = np.zeros((2, 3), np.float32)
    with pytest.raises(Failed, match="does not fit in 4 bytes"):
        ask("Buffer_ToHostBuffer", src=placed(client, array), dst=array.ctypes.data, dst_size=4)


def test_handles_say_how_many_results_there_are(client: int) -> None:
    executable = compiled(client, MODULE)
    counts = [
        getattr(ask(f"Executable_{name}", executable=executable), field)
        for name, field in (
            ("NumReplicas", "num_replicas"),
            ("NumPartitions", "num_partitions"),
            ("NumOutputs", "num_outputs"),
        )
    ]
    assert counts == [1, 1, 1]
    many = handles.new(None, handles.said({"Executable_NumOutputs": 100, "Executable_NumPartitions": 16}))
    assert (
        ask("Executable_NumOutputs", executable=many).num_outputs == 100
    )  # Python, which knows no executable, is not asked
    with pytest.raises(Failed, match="handle of a Executable"):
        ask("Executable_NumPartitions", executable=many)  # has no room in the handle


def test_handles_of_buffers_say_where_they_are_and_of_what() -> None:
    device, memory = handles.new(None), handles.new(None)
    while device >> 4 >= 1 << 6:  # a process of many clients has devices of which there is no room to speak
        device, memory = 0x20, 0x30
    bits = handles.said({"Buffer_Device": device, "Buffer_Memory": memory, "Buffer_ElementType": 11})
    buffer = handles.new(None, bits)  # Python, which knows no buffer, is not asked
    assert ask("Buffer_Device", buffer=buffer).device == device
    assert ask("Buffer_Memory", buffer=buffer).memory == memory
    assert ask("Buffer_ElementType", buffer=buffer).type == 11
    beyond = handles.new(None, handles.said({"Buffer_Device": 1 << 40}))
    with pytest.raises(Failed, match="handle of a Buffer"):
        ask("Buffer_Device", buffer=beyond)


def test_the_event_that_is_over_is_answered_without_python() -> None:
    called: list[tuple[int, int]] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)(lambda *args: called.append(args))
    address = ctypes.cast(callback, ctypes.c_void_p).value
    ask("Event_OnReady", event=DONE, callback=address, user_arg=2**40 + 7)
    assert called == [(0, 2**40 + 7)]
    assert ask("Event_IsReady", event=DONE).is_ready
    for name in ("Event_Await", "Event_Error", "Event_Destroy", "Event_Destroy"):
        ask(name, event=DONE)
    ask("Error_Destroy", error=0)
    with pytest.raises(Failed, match="a handle of a Event"):
        ask("Event_IsReady", event=0)


@pytest.mark.parametrize("name", sorted(set(SLOTS) - HANDLERS.keys()))
def test_what_is_absent_says_so(name: str) -> None:
    error = getattr(table(), name)(0)
    assert ask("Error_GetCode", error=error).code == UNIMPLEMENTED
    ask("Error_Destroy", error=error)


@pytest.mark.parametrize("handle", [0, 8, 2**40])
def test_handles_of_nothing_are_errors(handle: int) -> None:
    for name, field in (("Buffer_Dimensions", "buffer"), ("Executable_Name", "executable"), ("Memory_Id", "memory")):
        with pytest.raises(Failed, match="a handle of a"):
            ask(name, **{field: handle})
