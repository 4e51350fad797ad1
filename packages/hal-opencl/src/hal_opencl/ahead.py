"""Programs as sources: the kernels' OpenCL C, a C file that runs them, and a manifest for whoever writes another host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from string import Template
from typing import Any

from tile_hal.ahead import ABI, Entry, Exported, Exporter, Parameter, Status
from tile_hal.errors import Code, device_error
from tile_ir.kernels import BufferKind, KernelList, Step, StepKind
from tile_ir.semtree.nodes import MOST_COUNTS
from tile_ir.target import Target

from hal_opencl.compiler import FAST_OPTIONS, OPTIONS, OpenCLCompiler
from hal_opencl.emit.arrivals import arrives
from hal_opencl.emit.source import Source

_LINE = 100


class OpenCLExporter(Exporter):
    """Sources for devices like the one that they were compiled for."""

    links = False

    def __init__(self, device: str, target: Target, compiler: OpenCLCompiler) -> None:
        """`device` is the name that the host file looks for."""
        self._device = device
        self._target = target
        self._compiler = compiler

    @property
    def targets(self) -> Mapping[str, str]:
        return {"host": "this device, and those like it"}

    def target(self, name: str, threads: int) -> Target:
        return self._target

    def export(self, kernels: KernelList, entry: Entry, name: str) -> Exported:
        if any(step.kind is StepKind.LOOP for step in kernels.steps):
            hint = "build it with the device llvm, or build one round and write the loop in C"
            raise device_error(Code.BUILD, "a program with loops has no OpenCL host file", hint)
        sources = self._compiler.emit(kernels)
        text = "\n".join(dict.fromkeys(s.text for s in sources))
        options = " ".join(FAST_OPTIONS if kernels.target.options.fast_math else OPTIONS)
        manifest = json.dumps(_manifest(self._device, kernels, entry, sources, options), indent=2) + "\n"
        return Exported(texts={".cl": text, ".c": self._host(kernels, entry, sources, options), ".json": manifest})

    def _host(self, kernels: KernelList, entry: Entry, sources: Sequence[Source], options: str) -> str:
        programs = list(dict.fromkeys(s.text for s in sources))
        numbers = {text: n for n, text in enumerate(programs)}
        constants = {c.name: c.data for c in kernels.constants}
        places = {b.id: n for n, b in enumerate(kernels.buffers)}
        listed = [b for b in kernels.buffers if b.kind is BufferKind.CONST]
        return Template(_HOST).substitute(
            name=entry.name,
            abi=ABI,
            statuses=", ".join(f"TILE_{s.name} = {s.value}" for s in Status),
            device=_quoted(self._device),
            options=_quoted(options),
            programs=",\n".join(_literal(text) for text in programs) or '""',
            program_count=max(1, len(programs)),
            entries=", ".join(f"{{{numbers[s.text]}, {_quoted(s.entry)}}}" for s in sources) or '{0, ""}',
            kernel_count=max(1, len(sources)),
            sizes=", ".join(str(max(1, b.bytes)) for b in kernels.buffers) or "1",
            buffer_count=max(1, len(kernels.buffers)),
            counts=MOST_COUNTS,
            data="\n".join(f"static const unsigned char data{b.id}[] = {{{_bytes(constants[b.name])}}};" for b in listed),
            uploads="\n".join(
                f"    PUT({places[b.id]}, data{b.id}, {b.bytes});" for b in listed if b.bytes
            ),
            arguments=", ".join(p.name for p in entry.parameters),
            signature=entry.signature,
            checks="\n".join(_checks(entry.parameters)),
            inputs="\n".join(_transfers(entry.parameters, places, output=False)),
            steps="\n".join(_steps(kernels, places)),
            outputs="\n".join(_transfers(entry.parameters, places, output=True)),
        )  # fmt: skip


def _manifest(
    device: str, kernels: KernelList, entry: Entry, sources: Sequence[Source], options: str
) -> dict[str, Any]:
    """Everything that a host must know, but for the constants' bytes, which the C file has."""
    return {
        "abi": ABI,
        "function": entry.name,
        "device": device,
        "options": options,
        "parameters": [
            {"name": p.name, "dtype": str(p.dtype), "shape": list(p.shape), "buffer": p.buffer, "output": p.output}
            for p in entry.parameters
        ],
        "buffers": [{"id": b.id, "name": b.name, "kind": b.kind.value, "bytes": b.bytes} for b in kernels.buffers],
        "kernels": [
            {
                "entry": s.entry,
                "global": list(g),
                "local": list(local),
                "arrivals": k.function is not None and arrives(k.function),
            }
            for (g, local), s, k in zip(_ranges(kernels), sources, kernels.kernels, strict=True)
        ],
        "steps": [{"kind": s.kind.value, "kernel": s.kernel, "buffers": list(s.buffers)} for s in kernels.steps],
    }


def _ranges(kernels: KernelList) -> Iterator[tuple[tuple[int, ...], tuple[int, int, int]]]:
    """Work items in all, and of a group."""
    for kernel in kernels.kernels:
        assert kernel.function is not None
        local = kernel.function.group_size
        yield tuple(g * size for g, size in zip(kernel.groups, local, strict=True)), local


def _checks(parameters: Sequence[Parameter]) -> Iterator[str]:
    for p in parameters:
        if not p.by_value and p.nbytes:
            yield f"    if ({p.name} == NULL) return TILE_NULL;"


def _transfers(parameters: Sequence[Parameter], places: Mapping[int, int], *, output: bool) -> Iterator[str]:
    for p in parameters:
        if p.output is output and p.buffer is not None and p.nbytes:
            address = f"&{p.name}" if p.by_value else p.name
            yield f"    {'GET' if output else 'PUT'}({places[p.buffer]}, {address}, {p.nbytes});"


def _steps(kernels: KernelList, places: Mapping[int, int]) -> Iterator[str]:
    sizes = {b.id: b.bytes for b in kernels.buffers}
    ranges = list(_ranges(kernels))
    for step in kernels.steps:
        here, nbytes = [places[b] for b in step.buffers], sizes[step.buffers[0]]
        match step.kind:
            case StepKind.FILL if nbytes:
                yield f"    TRY(clEnqueueFillBuffer(queue_, buffers_[{here[0]}], &zero_, 1, 0, {nbytes}, 0, NULL, NULL));"
            case StepKind.COPY if nbytes:
                pair = f"buffers_[{here[1]}], buffers_[{here[0]}]"
                yield f"    TRY(clEnqueueCopyBuffer(queue_, {pair}, 0, 0, {nbytes}, 0, NULL, NULL));"
            case StepKind.KERNEL if prod(ranges[step.kernel][0]):
                function = kernels.kernels[step.kernel].function
                counts = function is not None and arrives(function)
                yield from _launch(step, here, ranges[step.kernel], counts)
            case _:
                pass


def _launch(
    step: Step, here: Sequence[int], range_: tuple[tuple[int, ...], tuple[int, int, int]], counts: bool
) -> Iterator[str]:
    for place, buffer in enumerate(here):
        yield f"    ARG({step.kernel}, {place}, buffers_[{buffer}]);"
    if counts:  # the groups that have arrived
        yield f"    ARG({step.kernel}, {len(here)}, arrivals_);"
    total, local = (", ".join(map(str, sizes)) for sizes in range_)
    yield f"    RUN({step.kernel}, {total}, {local});"


def _quoted(text: str) -> str:
    return json.dumps(text)


def _literal(text: str) -> str:
    return "\n".join(_quoted(line) for line in text.splitlines(keepends=True)) or '""'


def _bytes(data: memoryview) -> str:
    numbers = [str(b) for b in data] or ["0"]
    rows = (",".join(numbers[n : n + _LINE]) for n in range(0, len(numbers), _LINE))
    return ",\n".join(rows)


_HOST = """\
/* Runs the OpenCL kernels of $name. Link with -lOpenCL -lpthread. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

enum { $statuses };

static const char *const programs_[$program_count] = {
$programs};
static const struct { int program; const char *entry; } entries_[$kernel_count] = {$entries};
static const size_t sizes_[$buffer_count] = {$sizes};
$data

static pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
static int ready_;
static cl_context context_;
static cl_command_queue queue_;
static cl_program built_[$program_count];
static cl_kernel kernels_[$kernel_count];
static cl_mem buffers_[$buffer_count];
static cl_mem arrivals_;

#define TRY(call) do { if ((call) != CL_SUCCESS) return TILE_DEVICE; } while (0)
#define PUT(n, from, bytes) TRY(clEnqueueWriteBuffer(queue_, buffers_[n], CL_TRUE, 0, bytes, from, 0, NULL, NULL))
#define GET(n, to, bytes) TRY(clEnqueueReadBuffer(queue_, buffers_[n], CL_TRUE, 0, bytes, to, 0, NULL, NULL))
#define ARG(kernel, place, memory) TRY(clSetKernelArg(kernels_[kernel], place, sizeof(cl_mem), &memory))
#define RUN(kernel, x, y, z, a, b, c) do { \\
        const size_t all_[3] = {x, y, z}, group_[3] = {a, b, c}; \\
        TRY(clEnqueueNDRangeKernel(queue_, kernels_[kernel], 3, NULL, all_, group_, 0, NULL, NULL)); \\
    } while (0)

/* The device that the kernels were compiled for, by name, else the first one. */
static cl_device_id find_device_(void) {
    cl_platform_id platforms[16];
    cl_device_id devices[16], first = NULL;
    cl_uint platform_count = 0, count, p, d;
    char name[256];
    if (clGetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS) return NULL;
    for (p = 0; p < platform_count && p < 16; p++) {
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, devices, &count) != CL_SUCCESS) continue;
        for (d = 0; d < count && d < 16; d++) {
            if (first == NULL) first = devices[d];
            if (clGetDeviceInfo(devices[d], CL_DEVICE_NAME, sizeof name, name, NULL) == CL_SUCCESS
                && strcmp(name, $device) == 0) return devices[d];
        }
    }
    return first;
}

static int32_t set_up_(void) {
    cl_device_id device = find_device_();
    static const cl_uint zero_[$counts];
    cl_int problem;
    size_t n;
    if (device == NULL) return TILE_DEVICE;
    context_ = clCreateContext(NULL, 1, &device, NULL, NULL, &problem);
    TRY(problem);
    queue_ = clCreateCommandQueue(context_, device, 0, &problem);
    TRY(problem);
    for (n = 0; n < $program_count; n++) {
        const char *text = programs_[n];
        built_[n] = clCreateProgramWithSource(context_, 1, &text, NULL, &problem);
        TRY(problem);
        TRY(clBuildProgram(built_[n], 1, &device, $options, NULL, NULL));
    }
    for (n = 0; n < $kernel_count; n++) {
        if (entries_[n].entry[0] == 0) continue;
        kernels_[n] = clCreateKernel(built_[entries_[n].program], entries_[n].entry, &problem);
        TRY(problem);
    }
    for (n = 0; n < $buffer_count; n++) {
        buffers_[n] = clCreateBuffer(context_, CL_MEM_READ_WRITE, sizes_[n], NULL, &problem);
        TRY(problem);
    }
    arrivals_ = clCreateBuffer(context_, CL_MEM_READ_WRITE, sizeof zero_, NULL, &problem);
    TRY(problem);
    TRY(clEnqueueWriteBuffer(queue_, arrivals_, CL_TRUE, 0, sizeof zero_, zero_, 0, NULL, NULL));
$uploads
    return TILE_OK;
}

static int32_t run_($signature) {
    const cl_uchar zero_ = 0;
    (void)zero_;
$inputs
$steps
    TRY(clFinish(queue_));
$outputs
    return TILE_OK;
}

static void tear_down_(void) {
    size_t n;
    for (n = 0; n < $buffer_count; n++) if (buffers_[n] != NULL) clReleaseMemObject(buffers_[n]);
    for (n = 0; n < $kernel_count; n++) if (kernels_[n] != NULL) clReleaseKernel(kernels_[n]);
    for (n = 0; n < $program_count; n++) if (built_[n] != NULL) clReleaseProgram(built_[n]);
    if (arrivals_ != NULL) clReleaseMemObject(arrivals_);
    if (queue_ != NULL) clReleaseCommandQueue(queue_);
    if (context_ != NULL) clReleaseContext(context_);
    memset(buffers_, 0, sizeof buffers_);
    memset(kernels_, 0, sizeof kernels_);
    memset(built_, 0, sizeof built_);
    arrivals_ = NULL;
    queue_ = NULL;
    context_ = NULL;
    ready_ = 0;
}

int32_t ${name}_abi(void) { return $abi; }

void ${name}_release(void) {
    pthread_mutex_lock(&lock_);
    tear_down_();
    pthread_mutex_unlock(&lock_);
}

int32_t $name($signature) {
    int32_t status = TILE_OK;
$checks
    pthread_mutex_lock(&lock_);
    if (!ready_) {
        status = set_up_();
        if (status == TILE_OK) ready_ = 1; else tear_down_();
    }
    if (status == TILE_OK) status = run_($arguments);
    pthread_mutex_unlock(&lock_);
    return status;
}
"""
