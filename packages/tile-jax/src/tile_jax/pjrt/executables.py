"""Executables: compiling programs, and running them on buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_runtime.tensor import Tensor, asarray

from tile_jax import lowering
from tile_jax.pjrt.buffers import Buffer
from tile_jax.pjrt.elements import number_of
from tile_jax.pjrt.events import event_of
from tile_jax.pjrt.handles import KEEPER, Array, Handler, Text, drop, find, new, read_text, said, text, written
from tile_jax.pjrt.named import NamedValues
from tile_jax.pjrt.options import CompileOptions, read_options
from tile_jax.pjrt.state import KIND, Client, Device
from tile_jax.pjrt.structs import STRUCTS

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator

_MAGIC = b"tile-jax 1\n"
_NONE: frozenset[int] = frozenset()


class Executable:
    """A program on the devices that it was compiled for. JAX's two kinds, loaded and not, are handles of the same."""

    def __init__(self, client: Client, code: bytes, raw_options: bytes) -> None:
        self._client = client
        self._code = code
        self._raw_options = raw_options
        options = read_options(raw_options)
        self.program = lowering.lowered(code)
        self.replicas, self.partitions = options.replicas, options.partitions
        self.devices = _placed(client, options)
        self.overrides = options.overrides
        self._evaluators: dict[Device, Evaluator] = {
            d: client.evaluator(d.tile, options.overrides) for d in self.devices
        }
        self.device_handles = Array([d.handle for d in self.devices])
        self.name = Text(self.program.name)
        self.deleted = False
        self.arguments = _pointers(len(self.program.inputs))
        self.results = _pointers(len(self.program.outputs))
        self._complex = [k in self.program.complexes for k in range(len(self.program.outputs))]

    @property
    def says(self) -> int:
        """What its handles answer by themselves."""
        return said(
            {
                "Executable_NumReplicas": self.replicas,
                "Executable_NumPartitions": self.partitions,
                "Executable_NumOutputs": len(self.program.outputs),
            }
        )

    @cached_property
    def elements(self) -> list[int]:
        """PJRT's number for each output's element type."""
        return [number_of(t.dtype, c) for t, c in zip(self.program.outputs, self._complex, strict=True)]

    @cached_property
    def fingerprint(self) -> Text:
        """A digest of the program, its options and the devices."""
        return Text(sha256(self.serialized.bytes).hexdigest())

    @cached_property
    def serialized(self) -> Serialized:
        """What `loaded` makes the same of: the program as JAX gave it; kernels come from Tile's own cache."""
        return Serialized(_MAGIC + len(self._raw_options).to_bytes(8, "little") + self._raw_options + self._code)

    @cached_property
    def element_types(self) -> Array:
        return Array(self.elements, ctypes.c_int32)

    @cached_property
    def dimensions(self) -> tuple[Array, Array]:
        """The extents of all outputs one after the other, and how many each has."""
        shapes = [t.shape[:-1] if c else t.shape for t, c in zip(self.program.outputs, self._complex, strict=True)]
        return Array([extent for shape in shapes for extent in shape]), Array([len(s) for s in shapes], ctypes.c_uint64)

    @cached_property
    def memory_kinds(self) -> tuple[Array, Array]:
        count, kind = len(self.program.outputs), text(KIND)
        return Array([kind.address] * count, ctypes.c_uint64), Array([kind.size] * count, ctypes.c_uint64)

    @cached_property
    def costs(self) -> NamedValues:
        """What the program computes and moves, from the shapes alone."""
        return NamedValues(dict(self.program.costs()))

    def run(self, devices: Sequence[Device], rows: Sequence[Sequence[int]], kept: frozenset[int]) -> list[list[Buffer]]:
        """The outputs, a row for each device. Donated arguments are deleted, but those whose numbers are `kept`."""
        program, lent = self.program, set[int]()
        given = [[find(Buffer, handle) for handle in row] for row in rows]
        tensors = [self._read(d, row, lent) for d, row in zip(devices, given, strict=True)]
        made = program.run(tensors, [self._evaluators[d] for d in devices])
        for number in program.donated:
            if number not in kept:
                for row in given:
                    row[number].delete()
        if lent:
            made = [[_kept_beyond(tensor, lent) for tensor in row] for row in made]
        return [
            [Buffer(d, tensor, complex=c) for tensor, c in zip(row, self._complex, strict=True)]
            for d, row in zip(devices, made, strict=True)
        ]

    def on(self, device: Device) -> list[Device]:
        """The one device that a call names instead of those that it was compiled for."""
        if device not in self._evaluators:
            self._evaluators[device] = self._client.evaluator(device.tile, self.overrides)
        return [device]

    def _read(self, device: Device, buffers: Sequence[Buffer], lent: set[int]) -> list[Tensor]:
        """What is in buffers; notes the tensors that are in the host's memory."""
        tile = device.tile
        tensors: list[Tensor] = []
        for buffer in buffers:
            tensor = buffer.contents
            if tensor.device is not tile:
                message = f"an argument is on {tensor.device.id}, and {self.program.name!r} runs on {tile.id}"
                raise TileTypeError(Diagnostic("TILE-E953", message, hint="jax.device_put moves it"))
            if buffer.owner is not None:
                lent.add(id(tensor))
            tensors.append(tensor)
        return tensors


def _kept_beyond(tensor: Tensor, lent: set[int]) -> Tensor:
    """A result in memory of its own: an argument that is handed on may be in the host's, which is freed after the call."""
    return asarray(tensor.numpy(), tensor.device) if id(tensor) in lent else tensor


class Serialized:
    """Bytes that JAX copies and lets go of."""

    def __init__(self, raw: bytes) -> None:
        self.bytes = raw
        self.text = Text(raw)


def loaded(client: Client, raw: bytes) -> Executable:
    """An executable from its serialized form; TileTypeError for anything else."""
    if not raw.startswith(_MAGIC):
        message = "the bytes are no executable that this version of tile-jax has serialized"
        raise TileTypeError(Diagnostic("TILE-E955", message))
    start = len(_MAGIC) + 8
    end = start + int.from_bytes(raw[len(_MAGIC) : start], "little")
    return Executable(client, raw[end:], raw[start:end])


def _placed(client: Client, options: CompileOptions) -> list[Device]:
    count = options.replicas * options.partitions
    numbers = options.devices or tuple(range(count))
    if len(numbers) != count or max(numbers) >= len(client.devices):
        message = f"the program is for {count} devices {list(numbers)}, and there are {len(client.devices)}"
        hint = "TILE_JAX_DEVICES=llvm,llvm makes two of one Tile device"
        raise TileTypeError(Diagnostic("TILE-E953", message, hint=hint))
    return [client.devices[number] for number in numbers]


# --- compiling ---------------------------------------------------------------------------------------------


def _compile(args: Any) -> None:
    program: Any = STRUCTS["Program"].from_address(args.program)
    form = read_text(program.format, program.format_size).decode()
    if form != "mlir":
        message = f"the program is in the form {form!r}, and tile-jax reads StableHLO ('mlir')"
        raise TileTypeError(Diagnostic("TILE-E955", message))
    code = read_text(program.code, program.code_size)
    options = read_text(args.compile_options, args.compile_options_size)
    made = Executable(find(Client, args.client), code, options)
    args.executable = new(made, made.says)


def _deserialize(args: Any) -> None:
    raw = read_text(args.serialized_executable, args.serialized_executable_size)
    made = loaded(find(Client, args.client), raw)
    args.loaded_executable = new(made, made.says)


def _serialize(args: Any) -> None:
    found = find(Executable, args.executable).serialized
    args.serialized_bytes, args.serialized_bytes_size = found.text.address, found.text.size
    args.serialized_executable, args.serialized_executable_deleter = 0, KEEPER


# --- running -----------------------------------------------------------------------------------------------


def _execute(args: Any) -> None:
    executable = find(Executable, args.executable)
    if executable.deleted:
        message = f"the executable {executable.program.name!r} has been deleted"
        raise TileTypeError(Diagnostic("TILE-E953", message))
    devices = executable.on(find(Device, args.execute_device)) if args.execute_device else executable.devices
    kept = _kept(args.options) if executable.program.donated else _NONE
    given: list[Any] = [()] * len(devices)
    if args.num_args:
        lists = _pointers(len(devices)).from_address(args.argument_lists)[:]
        given = [executable.arguments.from_address(address)[:] for address in lists]
    _deliver(args, executable, executable.run(devices, given, kept))


@cache
def _pointers(count: int) -> Any:
    """The type of so many handles or addresses in a row; its slices are lists, several times faster than iterating."""
    return ctypes.c_uint64 * count


def _kept(options: int) -> frozenset[int]:
    """Numbers of arguments that are not to be donated in this call."""
    if not options:
        return frozenset()
    found: Any = STRUCTS["ExecuteOptions"].from_address(options)
    count = found.num_non_donatable_input_indices
    if not count:
        return frozenset()
    return frozenset((ctypes.c_int64 * count).from_address(found.non_donatable_input_indices))


def _deliver(args: Any, executable: Executable, made: Sequence[Sequence[Buffer]]) -> None:
    """Writes handles of what was made to where JAX wants them."""
    outs = _pointers(len(made)).from_address(args.output_lists)[:]
    for address, buffers in zip(outs, made, strict=True):
        if buffers:
            executable.results.from_address(address)[:] = [
                new(b, b.device.says[element]) for b, element in zip(buffers, executable.elements, strict=True)
            ]
    if args.device_complete_events:
        events = _pointers(len(made)).from_address(args.device_complete_events)
        events[:] = [event_of([b.contents.pending_write for b in buffers]) for buffers in made]


# --- what an executable is ---------------------------------------------------------------------------------


def _name(args: Any) -> None:
    written(args, "executable_name", find(Executable, args.executable).name)


def _replicas(args: Any) -> None:
    args.num_replicas = find(Executable, args.executable).replicas


def _partitions(args: Any) -> None:
    args.num_partitions = find(Executable, args.executable).partitions


def _outputs(args: Any) -> None:
    args.num_outputs = len(find(Executable, args.executable).program.outputs)


def _code_size(args: Any) -> None:
    args.size_in_bytes = -1  # kernels are compiled when they first run


def _fingerprint(args: Any) -> None:
    written(args, "executable_fingerprint", find(Executable, args.executable).fingerprint)


def _costs(args: Any) -> None:
    found = find(Executable, args.executable).costs
    args.properties, args.num_properties = found.address, found.size


_ZERO = [name for name, _ in STRUCTS["Executable_GetCompiledMemoryStats"]._fields_ if name.endswith("in_bytes")]


def _memory_stats(args: Any) -> None:
    program = find(Executable, args.executable).program
    for name in _ZERO:
        setattr(args, name, 0)
    args.argument_size_in_bytes = sum(t.nbytes for t in program.inputs)
    args.output_size_in_bytes = sum(t.nbytes for t in program.outputs)


def _element_types(args: Any) -> None:
    found = find(Executable, args.executable).element_types
    args.output_types, args.num_output_types = found.address, found.size


def _dimensions(args: Any) -> None:
    extents, ranks = find(Executable, args.executable).dimensions
    args.num_outputs, args.dims, args.dim_sizes = ranks.size, extents.address, ranks.address


def _memory_kinds(args: Any) -> None:
    kinds, sizes = find(Executable, args.executable).memory_kinds
    args.num_outputs, args.memory_kinds, args.memory_kind_sizes = sizes.size, kinds.address, sizes.address


def _devices(args: Any) -> None:
    found = find(Executable, args.executable).device_handles
    args.addressable_devices, args.num_addressable_devices = found.address, found.size


def _executable(args: Any) -> None:
    found = find(Executable, args.loaded_executable)
    args.executable = new(found, found.says)


# --- its life ----------------------------------------------------------------------------------------------


def _destroy(args: Any) -> None:
    drop(args.executable)


def _delete(args: Any) -> None:
    find(Executable, args.executable).deleted = True


def _is_deleted(args: Any) -> None:
    args.is_deleted = find(Executable, args.executable).deleted


HANDLERS: dict[str, Handler] = {
    "Client_Compile": _compile,
    "Executable_DeserializeAndLoad": _deserialize,
    "Executable_Serialize": _serialize,
    "LoadedExecutable_Execute": _execute,
    "Executable_Name": _name,
    "Executable_NumReplicas": _replicas,
    "Executable_NumPartitions": _partitions,
    "Executable_NumOutputs": _outputs,
    "Executable_SizeOfGeneratedCodeInBytes": _code_size,
    "Executable_Fingerprint": _fingerprint,
    "LoadedExecutable_Fingerprint": _fingerprint,
    "Executable_GetCostAnalysis": _costs,
    "Executable_GetCompiledMemoryStats": _memory_stats,
    "Executable_OutputElementTypes": _element_types,
    "Executable_OutputDimensions": _dimensions,
    "Executable_OutputMemoryKinds": _memory_kinds,
    "LoadedExecutable_AddressableDevices": _devices,
    "LoadedExecutable_GetExecutable": _executable,
    "Executable_Destroy": _destroy,
    "LoadedExecutable_Destroy": _destroy,
    "LoadedExecutable_Delete": _delete,
    "LoadedExecutable_IsDeleted": _is_deleted,
}
