"""The part of pyopencl that is used, typed; importing this module loads the OpenCL loader.

Raw objects are pyopencl's own. Errors of OpenCL calls are `cl_error` (pyopencl's class), which the callers
turn into device errors. pyopencl's source-level build cache is left out: the runtime has its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt
from tile_hal.errors import Code, device_error
from tile_ir import forking
from tile_ir.matrix import DPAS

from hal_opencl.emit.dpas import EXTENSIONS

cl: Any = import_module("pyopencl")
"""pyopencl without static types: its stubs vary between versions."""
cl_error: type[Exception] = cl.Error

RawEvent = Any
RawBuffer = Any
RawQueue = Any
RawKernel = Any
RawProgram = Any


def out_of_memory(problem: Exception) -> bool:
    """An OpenCL error that says so."""
    names = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")
    return isinstance(problem, cl.MemoryError) or any(name in str(problem) for name in names)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What one OpenCL device says of itself."""

    raw: Any
    platform: str
    platform_version: str
    vendor: str
    name: str
    driver: str
    version: str
    kind: str
    """"cpu", "gpu", "accelerator" or "custom"."""
    extensions: frozenset[str]
    units: int
    max_group: int
    max_groups: tuple[int, int, int]
    """Work items per dimension of a group."""
    local_bytes: int
    local_is_real: bool
    """Local memory is memory of its own, not a part of global memory."""
    global_bytes: int
    max_allocation: int
    cache_bytes: int
    cache_line: int
    float_lanes: int
    alignment: int
    """Bytes that the start of a sub-buffer is a multiple of."""
    unified: bool
    address_bits: int
    capability: tuple[int, int] = (0, 0)
    """NVIDIA's compute capability; (0, 0) elsewhere."""
    clock_mhz: int = 0
    """Highest clock; 0 where the device does not say."""
    vector_bytes: int = 128
    """Bytes of the widest vector that its compiler can be given."""
    subnormals: bool = True
    """Subnormal numbers of float32 count; optional in OpenCL."""

    @property
    def fp64(self) -> bool:
        return "cl_khr_fp64" in self.extensions

    @property
    def fp16(self) -> bool:
        return "cl_khr_fp16" in self.extensions

    @property
    def wide_atomics(self) -> bool:
        """Items may change one integer of 64 bits at once."""
        return "cl_khr_int64_base_atomics" in self.extensions

    @property
    def subgroups(self) -> bool:
        return "cl_khr_subgroups" in self.extensions

    @property
    def products(self) -> tuple[str, ...]:
        """The matrix instructions that extensions of OpenCL C give its sub-groups."""
        return tuple(i.name for i in DPAS if EXTENSIONS[i.a.dtype] in self.extensions)

    @property
    def teams(self) -> bool:
        """Its compiler makes PTX that its assembler may take for a processor whose sub-groups multiply in teams."""
        return self.ptx and self.capability == (9, 0)

    @property
    def ptx(self) -> bool:
        """Its compiler is NVIDIA's own, which takes PTX, and it has matrix instructions and asynchronous copies."""
        return self.kind == "gpu" and "nvidia" in self.platform.lower() and self.capability >= (8, 0)


@dataclass(frozen=True, slots=True)
class PlatformInfo:
    """A platform and its usable devices."""

    name: str
    version: str
    devices: tuple[DeviceInfo, ...]
    problem: str = ""


def version() -> str:
    return str(cl.VERSION_TEXT)


def platforms() -> list[PlatformInfo]:
    """Every platform; no driver at all is an empty list, a broken one has a `problem`."""
    try:
        found: list[Any] = cl.get_platforms()
    except cl_error:
        return []
    return [_platform(p) for p in found]


def _platform(raw: Any) -> PlatformInfo:
    try:
        name, text = str(raw.name).strip(), str(raw.version).strip()
    except cl_error as problem:
        return PlatformInfo("?", "?", (), str(problem))
    devices: list[DeviceInfo] = []
    problems: list[str] = []
    try:
        candidates: list[Any] = raw.get_devices()
    except cl_error as problem:
        none = getattr(problem, "code", 0) == cl.status_code.DEVICE_NOT_FOUND
        return PlatformInfo(name, text, (), "" if none else str(problem))
    for device in candidates:
        try:
            if device.available and device.compiler_available:
                devices.append(_probed(_device(device, name, text)))
        except (cl_error, BuildError) as problem:
            problems.append(" ".join(str(problem).split()))
    return PlatformInfo(name, text, tuple(devices), "; ".join(problems))


def _device(raw: Any, platform: str, platform_version: str) -> DeviceInfo:
    kinds = {"cpu": cl.device_type.CPU, "gpu": cl.device_type.GPU, "accelerator": cl.device_type.ACCELERATOR}
    kind = next((k for k, bit in kinds.items() if raw.type & bit), "custom")
    sizes = [int(n) for n in raw.max_work_item_sizes]
    return DeviceInfo(
        raw, platform, platform_version, str(raw.vendor).strip(), str(raw.name).strip(), str(raw.driver_version).strip(),
        str(raw.version).strip(), kind, frozenset(str(raw.extensions).split()), int(raw.max_compute_units),
        int(raw.max_work_group_size), (sizes[0], sizes[1], sizes[2]), int(raw.local_mem_size),
        raw.local_mem_type == cl.device_local_mem_type.LOCAL, int(raw.global_mem_size), int(raw.max_mem_alloc_size),
        int(raw.global_mem_cache_size), int(raw.global_mem_cacheline_size), int(raw.preferred_vector_width_float),
        max(64, int(raw.mem_base_addr_align) // 8), bool(raw.host_unified_memory), int(raw.address_bits), _capability(raw),
        int(raw.max_clock_frequency), subnormals=bool(raw.single_fp_config & cl.device_fp_config.DENORM),
    )  # fmt: skip


def _capability(raw: Any) -> tuple[int, int]:
    """Only NVIDIA's devices know this question; the others refuse it."""
    try:
        return int(raw.compute_capability_major_nv), int(raw.compute_capability_minor_nv)
    except (AttributeError, cl_error):
        return 0, 0


_WIDE_REGISTERS = """
#if !defined(__AVX512F__)
#error
#endif
kernel void probe(void) {}
"""


def _probed(info: DeviceInfo) -> DeviceInfo:
    """What a trial finds out; BuildError when the device cannot compile at all. Other devices are believed: a trial costs up to half a second.

    PoCL 3.0, the one from PyPI, knows no processors newer than its LLVM 14. It lists them all the same, may compile for them as
    for an older one, and then aborts or hangs the process over vectors of the 64 bytes that it claims to prefer.
    """
    if "PoCL 3.0" not in info.platform_version:
        return info
    context = make_context(info.raw)
    build_source(context, info.raw, "kernel void probe(void) {}", ())
    if info.float_lanes < 16 or info.kind != "cpu":
        return info
    try:
        build_source(context, info.raw, _WIDE_REGISTERS, ())
    except BuildError:
        return replace(info, float_lanes=8, vector_bytes=32)
    return info


# --- programs --------------------------------------------------------------------------------------


class BuildError(Exception):
    """The device's compiler refuses a program; the text is its log."""


def build_source(context: Any, device: Any, source: str, options: Sequence[str]) -> RawProgram:
    """A program compiled for one device."""
    return _build(cl._cl._Program(context, source), device, options)


def build_binary(context: Any, device: Any, binary: bytes, options: Sequence[str]) -> RawProgram:
    """A program from its `binary_of`."""
    try:
        program = cl._cl._Program(context, [device], [binary])
    except cl_error as problem:
        raise BuildError(str(problem)) from problem
    return _build(program, device, options)


def _build(program: Any, device: Any, options: Sequence[str]) -> RawProgram:
    try:
        program._build(" ".join(options).encode(), [device])
    except cl_error as problem:
        try:
            log = str(program.get_build_info(device, cl.program_build_info.LOG)).strip("\0\n ")
        except cl_error:
            log = ""
        raise BuildError(log or str(problem)) from problem
    return program


def binary_of(program: RawProgram) -> bytes:
    """Compiled code of a program's one device."""
    return bytes(program.get_info(cl.program_info.BINARIES)[0])


def kernel_of(program: RawProgram, name: str) -> RawKernel:
    """A fresh kernel object with arguments of its own."""
    return cl.Kernel(program, name)


def floats_of(context: Any, device: Any, program: RawProgram, name: str, items: int) -> npt.NDArray[np.float32]:
    """What one group of a kernel writes to its only buffer: a float of each work item."""
    queue, result = make_queue(context, device), np.zeros(items, np.float32)
    buffer = make_buffer(context, result.nbytes)
    kernel = kernel_of(program, name)
    kernel.set_arg(0, buffer)
    enqueue_kernel(queue, kernel, (items,), (items,))
    cl.enqueue_copy(queue, result, buffer)
    return result


# --- contexts, queues, memory -----------------------------------------------------------------------


def make_context(device: Any) -> Any:
    return cl.Context([device])


def make_queue(context: Any, device: Any, profiling: bool = False) -> RawQueue:
    """An in-order queue."""
    return cl.CommandQueue(context, device, properties=cl.command_queue_properties.PROFILING_ENABLE if profiling else 0)


def make_buffer(context: Any, nbytes: int) -> RawBuffer:
    return cl.Buffer(context, cl.mem_flags.READ_WRITE, nbytes)


def parameters(kernel: RawKernel) -> int:
    """How many arguments the kernel takes."""
    return int(kernel.num_args)


def wrap_array(context: Any, array: npt.NDArray[np.uint8]) -> RawBuffer:
    """A buffer that uses the array's own memory."""
    flags = cl.mem_flags.READ_WRITE if array.flags.writeable else cl.mem_flags.READ_ONLY
    return cl.Buffer(context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=array)


def sub_buffer(raw: RawBuffer, offset: int, nbytes: int) -> RawBuffer:
    return raw.get_sub_region(offset, nbytes)


def map_buffer(
    queue: RawQueue, raw: RawBuffer, nbytes: int, discard: bool, readonly: bool, waits: Sequence[RawEvent]
) -> npt.NDArray[np.uint8]:
    """Block until the events are done and the bytes are in host memory (with `discard`: any bytes)."""
    flags = cl.map_flags
    mode = flags.READ if readonly else flags.WRITE_INVALIDATE_REGION if discard else flags.READ | flags.WRITE
    array, _ = cl.enqueue_map_buffer(queue, raw, mode, 0, (nbytes,), np.uint8, wait_for=waits or None, is_blocking=True)
    return cast("npt.NDArray[np.uint8]", array)


def pinned(context: Any, queue: RawQueue, nbytes: int) -> tuple[RawBuffer, npt.NDArray[np.uint8]]:
    """Host memory that a device's copy engine reaches, and the buffer that keeps it."""
    raw = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, nbytes)
    return raw, map_buffer(queue, raw, nbytes, False, False, ())


def write(queue: RawQueue, raw: RawBuffer, start: int, data: npt.NDArray[np.uint8]) -> None:
    """Set bytes of a buffer from `start` on; blocks until they are there."""
    cl.enqueue_copy(queue, raw, data, dst_offset=start, is_blocking=True)


def read(queue: RawQueue, raw: RawBuffer, start: int, into: npt.NDArray[np.uint8]) -> None:
    """Copy bytes of a buffer from `start` on to host memory; blocks until they are there."""
    cl.enqueue_copy(queue, into, raw, src_offset=start, is_blocking=True)


def unmap(queue: RawQueue, array: npt.NDArray[np.uint8]) -> RawEvent:
    return cast(Any, array.base).release(queue)


def fill(queue: RawQueue, raw: RawBuffer, nbytes: int, waits: Sequence[RawEvent] | None) -> RawEvent:
    """Set bytes to 0; in words where the size allows, which is faster everywhere."""
    pattern = np.zeros(16 if nbytes % 16 == 0 else 1, np.uint8)
    return cl.enqueue_fill_buffer(queue, raw, pattern, 0, nbytes, wait_for=waits)


def copy(queue: RawQueue, src: RawBuffer, dst: RawBuffer, nbytes: int, waits: Sequence[RawEvent] | None) -> RawEvent:
    return cl.enqueue_copy(queue, dst, src, byte_count=nbytes, wait_for=waits)


def marker(queue: RawQueue, waits: Sequence[RawEvent] | None) -> RawEvent:
    return cl.enqueue_marker(queue, wait_for=waits)


enqueue_kernel: Any = cl.enqueue_nd_range_kernel
Sizes = ctypes.c_size_t * 3


def _bare_enqueue() -> Any:
    """`clEnqueueNDRangeKernel` of the loader behind pyopencl, which always asks for an event; None where no name leads there."""
    try:
        found = ctypes.CDLL(import_module("pyopencl._cl").__file__).clEnqueueNDRangeKernel
    except (AttributeError, ImportError, OSError):
        return None
    pointer, count = ctypes.c_void_p, ctypes.c_uint
    found.argtypes = pointer, pointer, count, pointer, pointer, pointer, count, pointer, pointer
    return found


_bare = _bare_enqueue()


def enqueue_unseen(queue: RawQueue, kernel: RawKernel, items: Sequence[int], group: Sequence[int]) -> None:
    """Enqueue a kernel without an event, where that is possible: between two kernels an H200 takes 3 µs to signal one."""
    raw = queue.int_ptr, kernel.int_ptr
    if _bare is None or _bare(*raw, 3, None, Sizes(*items), Sizes(*group), 0, None, None):
        enqueue_kernel(queue, kernel, items, group)  # which says what is wrong


COMPLETE: int = cl.command_execution_status.COMPLETE


def status(event: RawEvent) -> int:
    """`COMPLETE` after success, less after a failure, more before."""
    return event.command_execution_status


_POLLS = 40


def wait(event: RawEvent) -> None:
    """Block; raises `cl_error` when the work failed."""
    # Small work is done sooner than a sleeping thread is woken: about 20 µs of asking first.
    for _ in range(_POLLS):
        if event.command_execution_status <= COMPLETE:
            break
    event.wait()


def seconds(event: RawEvent) -> float:
    """Duration by the device's clock (the queue must profile)."""
    return max(0, int(event.profile.end) - int(event.profile.start)) * 1e-9


# --- forked processes --------------------------------------------------------------------------------

_CALLS = (
    "binary_of", "build_binary", "build_source", "copy", "enqueue_kernel", "enqueue_unseen", "fill", "kernel_of", "make_buffer", "make_context",
    "make_queue", "map_buffer", "marker", "pinned", "platforms", "read", "seconds", "sub_buffer", "unmap", "wait", "wrap_array", "write",
)  # fmt: skip
"""Functions here that ask the driver for something."""


def _refused(*_: object, **__: object) -> NoReturn:
    raise device_error(
        Code.EXECUTION,
        "OpenCL does not survive a fork, and this process was forked from one that uses it",
        "start processes by spawn or forkserver, fork before the first use, or set TILE_ISOLATE=opencl",
    )


def _after_fork() -> None:
    """Drivers' threads and locks are the parent's: whatever is asked of them in a child may wait for ever."""
    globals().update(dict.fromkeys(_CALLS, _refused))


forking.at_fork(in_child=_after_fork)
