"""Direct calls: whole programs as functions that Python calls with NumPy arrays, without any object in between.

The way through buffers and events costs ten microseconds, a small kernel a tenth of one. The native function of
`direct_ir` reads fields of NumPy's objects, so they are first looked for in arrays that are known: where they lie
elsewhere, as under another interpreter, there are no direct calls.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_hal.host import ALIGNMENT, HostBuffer
from tile_hal.interfaces import Buffer, Direct, DirectArray, Holder, Turning
from tile_ir import forking

from hal_llvm import binding, pool
from hal_llvm import direct_ir as layout

METH_FASTCALL = 0x80
LOOK_SECONDS = 0.02
"""How long the rounds of a loop go on, as they are estimated, before somebody looks for an interrupt."""
Words = ctypes.Array[ctypes.c_uint64]
Array = npt.NDArray[Any]


class Program:
    """The steps of a direct call, or of the rounds of a loop in it, as they are collected."""

    def __init__(self, outer: Program | None = None) -> None:
        self.outer = outer
        self.whole: Program = self if outer is None else outer.whole
        self.depth: int = -1 if outer is None else outer.depth + 1
        """How many loops are around these steps, less one."""
        self.turns: list[int] = []
        """Records of what turns in each round."""
        self.loops: list[tuple[Words, float]] = []
        """Records of the loops of the whole program, and the seconds that a round of each takes."""
        self.longest = 0.0
        """Seconds of the longest round of a loop, which nothing interrupts."""
        self.steps: list[int] = []
        """Address of a native function, or 0 for the pool, and its argument; of each step."""
        self.patches: list[int] = []
        """Number of an array and the address of a word that receives the array's; of each use."""
        self.odd: dict[int, int] = {}
        """For each array that is used, the bits of its address that must be zero."""
        self.scratch = 0
        """One more than the bytes of scratch that each worker needs; 0 when the caller does it all."""
        self.seconds = 0.0
        self.kept: list[object] = []
        self._inner: list[float] = []
        """Seconds of the loops among the steps."""
        self._bases: list[tuple[int, Buffer | int | Turning, int]] = []
        """Places among the turns that receive addresses from outside the loop, of what, and bits that must be zero."""

    def add(self, function: int, argument: int, seconds: float, *kept: object) -> None:
        """One more step, estimated to take `seconds`; what it refers to is kept."""
        self.steps += (function, argument)
        self.seconds += seconds
        self.whole.kept += kept

    def place(self, cell: int, buffer: Buffer | int | Turning, odd: int = 0) -> None:
        """Have the address of a buffer, of an array that a call passes, or of what turns, in the word at `cell`."""
        if isinstance(buffer, int):
            self.whole.patches += (buffer, cell)
            self.whole.odd[buffer] = self.whole.odd.get(buffer, 0) | odd
        elif isinstance(buffer, Turning):
            self._turn(cell, buffer, odd)
        else:
            assert isinstance(buffer, HostBuffer)
            ctypes.c_uint64.from_address(cell).value = buffer.address
            self.whole.kept.append(buffer)

    def _turn(self, cell: int, turning: Turning, odd: int) -> None:
        """Have an address in the word at `cell` that is another one in each round of the loop that `turning` names."""
        if turning.depth != self.depth:
            assert self.outer is not None
            self.outer._turn(cell, turning, odd)
            return
        start = (cell, len(turning.first), len(turning.cycle), turning.start, turning.stride)
        first = len(self.turns) + layout.TURN
        self.turns += (*start, *[0] * (len(turning.first) + len(turning.cycle)))
        self._bases += [(first + k, base, odd) for k, base in enumerate((*turning.first, *turning.cycle))]

    def loop(self, count: int, body: Program) -> None:
        """A step that runs those of `body` again and again."""
        words = (ctypes.c_uint64 * (layout.LOOP + len(body.turns) + len(body.steps)))()
        base = ctypes.addressof(words)
        turns, steps = layout.LOOP, layout.LOOP + len(body.turns)
        for number, word in enumerate((*body.turns, *body.steps), layout.LOOP):
            words[number] = word % 2**64
        bounds = [base + 8 * at for at in (turns, steps, steps, len(words))]
        words[layout.ROUNDS] = count
        words[layout.TURNS : layout.BODY_END + 1] = bounds
        for place, buffer, odd in body._bases:
            self.place(base + 8 * (turns + place), buffer, odd)
        self.whole.loops.append((words, body.seconds))
        self.whole.longest = max(self.whole.longest, body.seconds - sum(body._inner))
        self._inner.append(count * body.seconds)
        self.add(_native().address("direct.loop"), base, count * body.seconds, words)

    @property
    def unbroken(self) -> float:
        """Seconds of the longest stretch that no interrupt comes into."""
        return max(self.longest, self.seconds - sum(self._inner))

    def move(self, name: str, buffers: Sequence[Buffer | int | Turning], nbytes: int, seconds: float) -> None:
        """A step that fills or copies `nbytes`."""
        words = (ctypes.c_uint64 * (len(buffers) + 1))()
        words[-1] = nbytes
        for number, buffer in enumerate(buffers):
            self.place(ctypes.addressof(words) + 8 * number, buffer)
        self.add(_native().address(f"direct.{name}"), ctypes.addressof(words), seconds, words)


def direct(program: Program, arrays: Sequence[DirectArray], hold: float) -> Direct | None:
    """The program as a function of `arrays`, those that it writes last; None for an unknown NumPy.

    A program that takes less than `hold` seconds keeps the interpreter lock.
    """
    if not numpy_agrees():
        return None
    brief = program.seconds < hold
    return Direct(_native().function(_table(program, arrays, releases=not brief)), brief)


class _Table(np.ndarray[Any, np.dtype[np.uint64]]):
    """What the native function reads, which finds it where the data of an array is."""

    kept: Sequence[object]
    """What the words refer to."""


_tables: weakref.WeakValueDictionary[int, _Table] = weakref.WeakValueDictionary()
"""All that are in use, by address."""


def stop_all() -> None:
    """Have the loops of programs that run now end after a round; their calls fail."""
    for table in list(_tables.values()):
        if table[layout.CLAIMED]:
            table[layout.STOPPED] = 1


def _table(program: Program, arrays: Sequence[DirectArray], *, releases: bool) -> _Table:
    extents = [extent for a in arrays for extent in a.shape]
    records_at = layout.HEADER
    extents_at = records_at + layout.RECORD * len(arrays)
    patches_at = extents_at + len(extents)
    steps_at = patches_at + len(program.patches)
    table = np.zeros(steps_at + len(program.steps), np.uint64).view(_Table)
    base = int(table.__array_interface__["data"][0])
    inputs = sum(not a.written for a in arrays)
    bounds = (records_at, patches_at, steps_at, steps_at, len(table))
    header = [len(arrays), inputs, 0, int(releases), program.scratch, *(base + 8 * at for at in bounds), 0, 0]
    records: list[int] = []
    for number, array in enumerate(arrays):
        held = 0 if releases or array.holder is None else _held(array.holder, program)
        records += _record(array, program.odd.get(number, 0), base + 8 * extents_at, held)
        extents_at += len(array.shape)
    table[:] = [*header, *records, *extents, *program.patches, *program.steps]
    table.kept = program.kept
    for words, seconds in program.loops:
        words[layout.TABLE] = base
        words[layout.LOOKS] = max(1, int(LOOK_SECONDS / max(seconds, 1e-9))) if releases else 0
    _tables[base] = table
    return table


def _record(array: DirectArray, odd: int, extents: int, held: int) -> list[int]:
    dtype = array.dtype.numpy
    flags = layout.CONTIGUOUS | layout.ALIGNED | (layout.WRITEABLE if array.written else 0)
    nbytes = int(np.prod(array.shape, dtype=object)) * dtype.itemsize
    return [
        _word(id(dtype) + layout.ELEMENT) & layout.ELEMENT_MASK,
        flags,
        odd,
        nbytes,
        len(array.shape),
        extents,
        held,
    ]


def _held(holder: Holder, program: Program) -> int:
    """The address of a holder's record, which the program keeps; 0 for objects whose slots are not found."""
    slots = [_slot(holder.type, name) for name in (holder.array, *(name for name, _ in holder.fixed))]
    if not all(slots):
        return 0
    count = layout.HELD + layout.FIXED * len(holder.fixed)
    words = (ctypes.c_uint64 * count)()
    base = ctypes.addressof(words)
    fixed = [word for at, (_, value) in zip(slots[1:], holder.fixed, strict=True) for word in (at, id(value))]
    words[:] = [id(holder.type), slots[0], base + 8 * count, *fixed]
    program.kept += (words, holder)
    return base


@cache
def _slot(owner: type[object], name: str) -> int:
    """How many bytes behind the beginning of an object of this type a slot is; 0 where it is not found."""
    known = object.__new__(owner)
    mark = object()
    setattr(known, name, mark)
    places = range(object.__basicsize__, owner.__basicsize__, 8)
    return next((at for at in places if _word(id(known) + at) == id(mark)), 0)


def scratch(nbytes: int) -> tuple[int, Array]:
    """The address of `nbytes` of memory, aligned, and what keeps them."""
    block = HostBuffer(np.empty(nbytes + ALIGNMENT, np.uint8))
    return block.address + -block.address % ALIGNMENT, block.array


# --- the native function ----------------------------------------------------------------------------------


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class _Native:
    """The jitted functions, compiled once per process."""

    def __init__(self) -> None:
        host = binding.host()
        module = binding.Module(layout.direct_ir(_addresses()), binding.target_machine(host))
        self._code = binding.LoadedCode(
            [module.object_code()], ["direct.call", "direct.fill", "direct.copy", "direct.loop"]
        )
        module.close()
        self.address = self._code.addresses.__getitem__
        self._method = _Method(b"direct", self.address("direct.call"), METH_FASTCALL, None)
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self._make = make(("PyCFunction_NewEx", ctypes.pythonapi))

    def function(self, table: _Table) -> Callable[..., bool]:
        """A function of arrays, which keeps the table."""
        return self._make(ctypes.addressof(self._method), table, None)


_natives: list[_Native] = []


def _native() -> _Native:
    """The first that was made. Threads that come at once make one each: all stay, since functions are in their code."""
    if not _natives:
        _natives.append(_Native())
    return _natives[0]


def _addresses() -> dict[str, int]:
    functions = ("Py_IncRef", "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")
    found = {n: ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value or 0 for n in functions}
    objects = {"ndarray": np.ndarray, "True": True, "False": False}
    return found | {n: id(o) for n, o in objects.items()} | {"pool": ctypes.addressof(pool.shared)}


# --- where NumPy keeps things -----------------------------------------------------------------------------


@cache
def numpy_agrees() -> bool:
    """Whether the fields of arrays and dtypes lie where the native function reads them."""
    usual = sys.implementation.name == "cpython" and ctypes.sizeof(ctypes.c_void_p) == 8 and object.__basicsize__ == 16
    large = np.ndarray.__basicsize__ >= layout.ARRAY_SIZE and np.dtype.__basicsize__ >= layout.DESCRIPTOR_SIZE
    return usual and large and all(map(_agrees, _samples()))


def _samples() -> list[Array]:
    """Arrays that differ in every field; the last is read-only."""
    known = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    odd = np.zeros(9, np.uint8)[1:].view(">f8")
    arrays = [known, known.T, known[:, ::2], odd, np.array(7), np.ones((5, 1), np.bool_), np.zeros(3, np.uint64)]
    fixed = np.arange(3, dtype=np.int16)
    fixed.flags.writeable = False
    return [*arrays, fixed]


def _agrees(array: Array) -> bool:
    at, dtype = id(array), array.dtype
    fields = {
        layout.TYPE: id(type(array)),
        layout.DATA: array.__array_interface__["data"][0],
        layout.DESCRIPTOR: id(dtype),
    }
    return (
        all(_word(at + offset) == value for offset, value in fields.items())
        and (_int(at + layout.DIMENSIONS), _int(at + layout.ARRAY_FLAGS)) == (array.ndim, array.flags.num)
        and all(_word(_word(at + layout.SHAPE) + 8 * n) == extent for n, extent in enumerate(array.shape))
        and ctypes.string_at(id(dtype) + layout.ELEMENT, 3).decode("latin-1")
        == dtype.kind + dtype.char + dtype.byteorder
        and _int(id(dtype) + layout.ELEMENT + 4) == dtype.num
    )


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _int(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


def _after_fork() -> None:
    """The thread that had claimed a table is not in the child."""
    for table in list(_tables.values()):
        table[layout.CLAIMED] = 0


forking.at_fork(in_child=_after_fork)
