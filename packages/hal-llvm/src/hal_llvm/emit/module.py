"""Modules: kernels as functions over a range of work groups.

Each kernel gives two symbols: ``kernel<i>(ptr params, i64 first, i64 last, ptr scratch)`` runs work groups
``first <= g < last``; ``kernel<i>.all(ptr params)`` runs all of them, its scratch pointer being the one behind the parameters.
Parameters are those of a job (`pool_ir`): long loops end when its word for stopping, in front of them, is not 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tile_ir.diagnostics import TileDeviceError
from tile_ir.frozen import frozen
from tile_ir.kernels import STREAM_ALIGN, Kernel
from tile_ir.semtree.nodes import Access, Function, Param

from hal_llvm.emit import tiles
from hal_llvm.emit.code import Code, Machine, Module
from hal_llvm.emit.expressions import Scope
from hal_llvm.emit.memory import through_caches
from hal_llvm.emit.polling import polling_loops
from hal_llvm.emit.statements import Statements
from hal_llvm.emit.types import of
from hal_llvm.pool_ir import JOB_PARAMS, JOB_STOP


@frozen
class Emitted:
    """IR text and, for each kernel, the scratch bytes one thread needs, and whether some of its loops may be stopped."""

    text: str
    scratch: tuple[int, ...]
    polls: tuple[bool, ...]


class _Arena:
    """Offsets in the scratch memory of a thread, shared by a kernel and its helpers."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, code: Code, size: int, align: int) -> str:
        start = -(-self.size // align) * align
        self.size = start + size
        name = code.fresh("%scratch")
        code.entry.append(f"  {name} = getelementptr inbounds i8, ptr %scratch, i64 {start}")
        return name


MODULE_TEXT = 1 << 16
"""Characters of IR after which kernels go to another module: some tens of milliseconds for LLVM."""


def emit_module(kernels: Sequence[Kernel], machine: Machine) -> Emitted:
    """IR of all kernels, in one module."""
    (whole,) = emit_modules(kernels, machine, longest=None)
    return whole


def emit_modules(kernels: Sequence[Kernel], machine: Machine, longest: int | None = MODULE_TEXT) -> Iterator[Emitted]:
    """IR of all kernels in modules that can be compiled at once; how it is cut depends on the kernels only."""
    module, made = Module(machine), list[tuple[int, bool]]()
    for number, kernel in enumerate(kernels):
        if longest is not None and sum(map(len, module.functions)) >= longest:
            yield _emitted(module, made)
            module, made = Module(machine), []
        made.append(_kernel(module, number, kernel))
    yield _emitted(module, made)


def _emitted(module: Module, made: Sequence[tuple[int, bool]]) -> Emitted:
    return Emitted(module.text(), tuple(scratch for scratch, _ in made), tuple(polls for _, polls in made))


PAST = ".past"
"""Ends the name of a kernel's second body, which stores past the caches."""
_ATTRIBUTES = 'nounwind "prefer-vector-width"="512"'


def _kernel(module: Module, number: int, kernel: Kernel) -> tuple[int, bool]:
    """Adds a kernel to the module; gives its scratch bytes, and whether it may be stopped."""
    function = kernel.function
    if function is None:
        raise TileDeviceError(f"{kernel.title} has no semtree, which the llvm device needs", code="TILE-E709")
    if function.group_size != (1, 1, 1):
        raise TileDeviceError(
            f"{kernel.title} wants groups of {function.group_size}; the llvm device runs (1, 1, 1)",
            code="TILE-E709",
        )
    arena = _Arena()
    for helper in function.helpers:
        module.functions.append(_helper(module, number, helper, arena))
    polling = polling_loops(function.body)
    text, streamed = _body(module, number, function, kernel.groups, arena, polling)
    places = [n for n, param in enumerate(function.params) if param.name in streamed]
    module.functions.append(through_caches(text))
    if places:
        module.functions.append(text.replace(f"@body{number}(", f"@body{number}{PAST}(", 1))
    module.functions.append(_entry(number, function, kernel.groups, bool(polling), places))
    return arena.size, bool(polling)


def _parameter(param: Param, names: set[str]) -> str:
    if not param.type.ptr:
        return f"{of(param.type)} %p.{param.name}"
    shared = param.alias_of is not None or param.name in names
    align = max(param.align, param.type.dtype.bytes)
    return f"ptr {'' if shared else 'noalias '}align {align} %p.{param.name}"


def _parameters(function: Function) -> list[str]:
    aliased = {p.alias_of for p in function.params if p.alias_of is not None}
    return [_parameter(p, aliased) for p in function.params]


def _unwritten(function: Function) -> dict[str, int]:
    """Elements of each buffer that the kernel reads only and that shares no memory with another, by its pointer."""
    shared = {p.alias_of for p in function.params} | {p.name for p in function.params if p.alias_of is not None}
    read = (p for p in function.params if p.type.ptr and p.access is Access.READ and p.name not in shared)
    return {f"%p.{p.name}": p.elements for p in read}


def _scope(function: Function) -> Scope:
    scope = Scope()
    for param in function.params:
        scope.bind(param.name, f"%p.{param.name}")
    return scope


def _body(
    module: Module,
    number: int,
    function: Function,
    groups: tuple[int, int, int],
    arena: _Arena,
    polling: frozenset[int],
) -> tuple[str, set[str]]:
    """The kernel's text, and the parameters past whose buffers' caches it stores where they begin at lines."""
    code, scope = Code(module, unwritten=_unwritten(function)), _scope(function)
    loop, step, done = "group", "next", "done"
    has_tiles = tiles.uses_tiles(function)
    if has_tiles:
        tiles.begin(code)
    code.branch(code.let("icmp slt i64 %first, %last"), loop, done)
    code.block(loop)
    code.emit(f"%g = phi i64 [ %first, %entry ], [ %following, %{step} ]")
    scope.groups = _unpack(code, groups)
    _statements(code, scope, step, arena, number, polling).run(function.body)
    code.jump(step)
    code.block(step)
    code.emit("%following = add nsw i64 %g, 1")
    more = code.let("icmp slt i64 %following, %last")
    code.emit(f"br i1 {more}, label %{loop}, label %{done}, !llvm.loop {module.loop_id()}")
    code.block(done)
    if has_tiles:
        tiles.end(code)
    if code.streamed:
        code.emit("fence seq_cst")  # streaming stores are weakly ordered
    code.emit("ret void")
    stop = ["ptr %stop"] if polling else []
    params = ", ".join([*_parameters(function), *stop, "i64 %first", "i64 %last", "ptr noalias %scratch"])
    return f"define internal void @body{number}({params}) {_ATTRIBUTES} {{\n{code.body()}\n}}", code.streamed


def _statements(
    code: Code, scope: Scope, exit_label: str, arena: _Arena, number: int, polling: frozenset[int] = frozenset()
) -> Statements:
    def scratch(size: int, align: int) -> str:
        return arena.take(code, size, align)

    return Statements(code, scope, exit_label=exit_label, scratch=scratch, helpers=f"fn{number}.", polling=polling)


def _unpack(code: Code, groups: tuple[int, int, int]) -> tuple[str, str, str]:
    """Group numbers from the linear one; x is fastest."""
    nx, ny, nz = groups
    used = [axis for axis in range(3) if groups[axis] > 1]
    ids = ["0", "0", "0"]
    if len(used) <= 1:
        if used:
            ids[used[0]] = "%g"
        return ids[0], ids[1], ids[2]
    ids[0] = code.let(f"urem i64 %g, {nx}")
    rest = code.let(f"udiv i64 %g, {nx}")
    ids[1] = code.let(f"urem i64 {rest}, {ny}") if nz > 1 else rest
    ids[2] = code.let(f"udiv i64 {rest}, {ny}") if nz > 1 else "0"
    return ids[0], ids[1], ids[2]


def _entry(number: int, function: Function, groups: tuple[int, int, int], polls: bool, streamed: Sequence[int]) -> str:
    """The two symbols; parameters that are `streamed` must begin at lines for the body that stores past the caches."""
    loads: list[str] = []
    args: list[str] = []
    for place, param in enumerate(function.params):
        loads.append(f"  %a{place} = getelementptr inbounds ptr, ptr %params, i64 {place}")
        loads.append(f"  %b{place} = load ptr, ptr %a{place}")
        args.append(f"{of(param.type)} %b{place}")
    if polls:
        loads.append(f"  %stop = getelementptr i8, ptr %params, i64 {JOB_STOP - JOB_PARAMS}")
        args.append("ptr %stop")
    body = f"@body{number}"
    if streamed:
        loads += _chosen(body, streamed)
        body = "%body"
    total, last = groups[0] * groups[1] * groups[2], len(function.params)
    call = ", ".join([*args, "i64 %first", "i64 %last", "ptr %scratch"])
    whole = ", ".join([*args, "i64 0", f"i64 {total}", "ptr %scratch"])
    return "\n".join(
        [
            f"define void @kernel{number}(ptr %params, i64 %first, i64 %last, ptr %scratch) {_ATTRIBUTES} {{",
            *loads,
            f"  call void {body}({call})",
            "  ret void\n}",
            f"define void @kernel{number}.all(ptr %params) {_ATTRIBUTES} {{",
            *loads,
            f"  %s = getelementptr inbounds ptr, ptr %params, i64 {last}",
            "  %scratch = load ptr, ptr %s",
            f"  call void {body}({whole})",
            "  ret void\n}",
        ]
    )


def _chosen(body: str, streamed: Sequence[int]) -> list[str]:
    """Instructions that give the body to call: the one that stores past the caches where all these parameters begin at lines."""
    lines = ["  %m0 = or i64 0, 0"]
    for n, place in enumerate(streamed):
        lines += [f"  %n{n} = ptrtoint ptr %b{place} to i64", f"  %m{n + 1} = or i64 %m{n}, %n{n}"]
    return [
        *lines,
        f"  %rest = and i64 %m{len(streamed)}, {STREAM_ALIGN - 1}",
        "  %lined = icmp eq i64 %rest, 0",
        f"  %body = select i1 %lined, ptr {body}{PAST}, ptr {body}",
    ]


def _helper(module: Module, number: int, function: Function, arena: _Arena) -> str:
    code, scope = Code(module), _scope(function)
    scope.groups = ("%gx", "%gy", "%gz")
    _statements(code, scope, "done", arena, number).run(function.body)
    code.jump("done")
    code.block("done")
    code.emit("ret void")
    params = ", ".join([*_parameters(function), "i64 %gx", "i64 %gy", "i64 %gz", "ptr %scratch"])
    return through_caches(
        f"define internal void @fn{number}.{function.name}({params}) {_ATTRIBUTES} {{\n{code.body()}\n}}"
    )
