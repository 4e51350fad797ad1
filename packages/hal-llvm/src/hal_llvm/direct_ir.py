"""The native part of direct calls, as LLVM IR: a function that Python calls, which checks arrays and runs kernels.

One function serves every program. What it expects and does is a table that Python writes (`direct.Table`): a header,
a record for each array, a patch for each word that receives an array's address, and the steps. All fields are words
of eight bytes. Nothing is changed until all arrays fit and the table is claimed; whoever finds it claimed by another
thread is told so and takes the ordinary way.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from hal_llvm import pool_ir

# Header of a table: arrays, inputs among them, claimed, gives the interpreter lock back, bytes of scratch that each
# worker of the pool needs (0: needs no pool), and the addresses where records, patches and steps begin and end
# and, while the program runs without the interpreter lock, the state of its thread; and whether an interrupt ended it
COUNT, INPUTS, CLAIMED, RELEASES, SCRATCH, RECORDS, PATCHES, PATCHES_END, STEPS, STEPS_END, STATE, STOPPED, HEADER = (
    range(13)
)
# An array's record: what its dtype's fields must be, flags it must have, address bits that must be zero, bytes, rank,
# address of its extents, address of the record of objects that may hold it (0: none)
DTYPE, FLAGS, ODD, BYTES, RANK, EXTENTS, HOLDER, RECORD = range(8)
# A record of such objects: their type, the byte of the slot with the array, where its fixed slots end, which follow:
# byte of the slot, address of the object that must be in it
HELD_TYPE, HELD_ARRAY, FIXED_END, HELD = range(4)
SLOT, OBJECT, FIXED = range(3)
# A patch: number of the array, address of the word that receives the array's address
ARRAY, CELL, PATCH = range(3)
# A step: function and its one argument; function 0 is a job for the pool
FUNCTION, ARGUMENT, STEP = range(3)
# A loop, the argument of the step ``direct.loop``: rounds, rounds between two looks for an interrupt (0: none), address of
# the program's table, and the addresses where its turns and its steps begin and end
ROUNDS, LOOKS, TABLE, TURNS, TURNS_END, BODY, BODY_END, LOOP = range(8)
# What turns in each round: address of the word that receives an address, how many addresses the first rounds have, how
# many then go round, and what is added to these: a start, and a stride for each round; the addresses follow
TARGET, FIRST, PERIOD, START, STRIDE, TURN = range(6)

# The fields of NumPy's objects, in bytes; `direct` compares them with arrays it knows before it relies on them
TYPE, DATA, DIMENSIONS, SHAPE, DESCRIPTOR, ARRAY_FLAGS, ARRAY_SIZE = 8, 16, 24, 32, 56, 64, 68
ELEMENT, DESCRIPTOR_SIZE = 24, 32
"""Eight bytes of a dtype: kind, character, byte order, flags (which say nothing of the elements) and number."""
ELEMENT_MASK = int.from_bytes(b"\xff\xff\xff\x00\xff\xff\xff\xff", sys.byteorder)
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400


def direct_ir(addresses: Mapping[str, int]) -> str:
    """IR of ``direct.call(ptr self, ptr args, i64 count) -> ptr`` and of the steps ``direct.fill`` and ``direct.copy``.

    `addresses` are those of the objects and functions, in this process, that the text names between @ signs.
    """
    text = _FIELD.sub(r"\1.at = getelementptr i8, ptr \3, i64 \4\n  \1 = load \2, ptr \1.at", _TEMPLATE)
    for name, offset in _OFFSETS.items():
        text = text.replace(f"#{name}#", str(offset))
    for name, address in addresses.items():
        text = text.replace(f"@{name}@", f"inttoptr (i64 {address} to ptr)")
    return text


_WORDS = {
    "COUNT": COUNT, "INPUTS": INPUTS, "CLAIMED": CLAIMED, "RELEASES": RELEASES, "SCRATCH": SCRATCH, "RECORDS": RECORDS,
    "PATCHES": PATCHES, "PATCHES_END": PATCHES_END, "STEPS": STEPS, "STEPS_END": STEPS_END, "DTYPE": DTYPE,
    "FLAGS": FLAGS, "ODD": ODD, "BYTES": BYTES, "RANK": RANK, "EXTENTS": EXTENTS, "HOLDER": HOLDER, "RECORD": RECORD,
    "HELD_TYPE": HELD_TYPE, "HELD_ARRAY": HELD_ARRAY, "FIXED_END": FIXED_END, "HELD": HELD, "SLOT": SLOT,
    "OBJECT": OBJECT, "FIXED": FIXED, "ARRAY": ARRAY, "CELL": CELL, "PATCH": PATCH, "FUNCTION": FUNCTION, "ARGUMENT": ARGUMENT, "STEP": STEP, "STATE": STATE,
    "STOPPED": STOPPED, "ROUNDS": ROUNDS, "LOOKS": LOOKS, "TABLE": TABLE, "TURNS": TURNS, "TURNS_END": TURNS_END,
    "BODY": BODY, "BODY_END": BODY_END, "TARGET": TARGET, "FIRST": FIRST, "PERIOD": PERIOD, "START": START,
    "STRIDE": STRIDE, "TURN": TURN,
}  # fmt: skip
_OFFSETS = {name: 8 * word for name, word in _WORDS.items()} | {
    "TYPE": TYPE, "DATA": DATA, "DIMENSIONS": DIMENSIONS, "SHAPE": SHAPE, "DESCRIPTOR": DESCRIPTOR,
    "ARRAY_FLAGS": ARRAY_FLAGS, "ELEMENT": ELEMENT, "ELEMENT_MASK": ELEMENT_MASK,
    "RUN": pool_ir.RUN, "RESERVED": pool_ir.RESERVED,
}  # fmt: skip

_FIELD = re.compile(r"(%[\w.]+) = field (\w+) (%[\w.]+), (\S+)")
"""``%value = field type %of, offset``, short for the two instructions that load it."""
_TEMPLATE = """
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; What stands for an object: the array in its slot where it may hold one and nothing else about it is unusual, else itself.
define internal ptr @array(ptr %object, ptr %record) nounwind {
  %holder = field ptr %record, #HOLDER#
  %never = icmp eq ptr %holder, null
  br i1 %never, label %itself, label %look
look:
  %type = field ptr %object, #TYPE#
  %wanted = field ptr %holder, #HELD_TYPE#
  %known = icmp eq ptr %type, %wanted
  br i1 %known, label %slots, label %itself
slots:
  %first = getelementptr i8, ptr %holder, i64 #HELD#
  %end = field ptr %holder, #FIXED_END#
  br label %slot
slot:
  %fixed = phi ptr [ %first, %slots ], [ %next, %compare ]
  %done = icmp eq ptr %fixed, %end
  br i1 %done, label %held, label %compare
compare:
  %offset = field i64 %fixed, #SLOT#
  %expected = field ptr %fixed, #OBJECT#
  %found = field ptr %object, %offset
  %next = getelementptr i8, ptr %fixed, i64 #FIXED#
  %same = icmp eq ptr %found, %expected
  br i1 %same, label %slot, label %itself
held:
  %array.slot = field i64 %holder, #HELD_ARRAY#
  %array = field ptr %object, %array.slot
  %empty = icmp eq ptr %array, null
  br i1 %empty, label %itself, label %there
there:
  ret ptr %array
itself:
  ret ptr %object
}

; Put what stands for each object into `arrays`; false for another number of them.
define internal i1 @arrays(ptr %table, ptr %args, i64 %count, ptr %arrays) nounwind {
  %expected = field i64 %table, #COUNT#
  %records = field ptr %table, #RECORDS#
  %complete = icmp eq i64 %count, %expected
  br i1 %complete, label %objects, label %no
objects:
  %n = phi i64 [ 0, %0 ], [ %n.next, %one ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %one, label %yes
one:
  %offset = shl i64 %n, 3
  %object = field ptr %args, %offset
  %n.record = mul i64 %n, #RECORD#
  %record = getelementptr i8, ptr %records, i64 %n.record
  %array = call ptr @array(ptr %object, ptr %record)
  %target = getelementptr i8, ptr %arrays, i64 %offset
  store ptr %array, ptr %target
  %n.next = add i64 %n, 1
  br label %objects
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether an object is a plain array of the record's dtype, flags, address, rank and extents.
define internal i1 @fits(ptr %array, ptr %record) nounwind {
  %type = field ptr %array, #TYPE#
  %plain = icmp eq ptr %type, @ndarray@
  br i1 %plain, label %fields, label %no
fields:
  %descriptor = field ptr %array, #DESCRIPTOR#
  %element = field i64 %descriptor, #ELEMENT#
  %telling = and i64 %element, #ELEMENT_MASK#
  %dtype = field i64 %record, #DTYPE#
  %dtype.bad = xor i64 %telling, %dtype
  %flags.int = field i32 %array, #ARRAY_FLAGS#
  %flags = zext i32 %flags.int to i64
  %wanted = field i64 %record, #FLAGS#
  %has = and i64 %flags, %wanted
  %flags.bad = xor i64 %has, %wanted
  %data = field i64 %array, #DATA#
  %odd = field i64 %record, #ODD#
  %data.bad = and i64 %data, %odd
  %dimensions.int = field i32 %array, #DIMENSIONS#
  %dimensions = zext i32 %dimensions.int to i64
  %rank = field i64 %record, #RANK#
  %rank.bad = xor i64 %dimensions, %rank
  %bad.1 = or i64 %dtype.bad, %flags.bad
  %bad.2 = or i64 %data.bad, %rank.bad
  %bad = or i64 %bad.1, %bad.2
  %good = icmp eq i64 %bad, 0
  br i1 %good, label %extents, label %no
extents:
  %shape = field ptr %array, #SHAPE#
  %shape.wanted = field ptr %record, #EXTENTS#
  br label %axis
axis:
  %n = phi i64 [ 0, %extents ], [ %n.next, %compare ]
  %more = icmp ult i64 %n, %rank
  br i1 %more, label %compare, label %yes
compare:
  %offset = shl i64 %n, 3
  %extent = field i64 %shape, %offset
  %extent.wanted = field i64 %shape.wanted, %offset
  %n.next = add i64 %n, 1
  %same = icmp eq i64 %extent, %extent.wanted
  br i1 %same, label %axis, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether two arrays have no byte in common.
define internal i1 @apart(ptr %left, ptr %left.record, ptr %right, ptr %right.record) nounwind {
  %left.data = field i64 %left, #DATA#
  %left.bytes = field i64 %left.record, #BYTES#
  %left.end = add i64 %left.data, %left.bytes
  %right.data = field i64 %right, #DATA#
  %right.bytes = field i64 %right.record, #BYTES#
  %right.end = add i64 %right.data, %right.bytes
  %before = icmp ule i64 %left.end, %right.data
  %behind = icmp ule i64 %right.end, %left.data
  %apart = or i1 %before, %behind
  ret i1 %apart
}

; Whether all arrays fit, and every output is apart from the arrays before it.
define internal i1 @accepts(ptr %table, ptr %args, i64 %count) nounwind {
  %inputs = field i64 %table, #INPUTS#
  %records = field ptr %table, #RECORDS#
  br label %arrays
arrays:
  %a = phi i64 [ 0, %0 ], [ %a.next, %following ]
  %more = icmp ult i64 %a, %count
  br i1 %more, label %one, label %yes
one:
  %a.offset = shl i64 %a, 3
  %array = field ptr %args, %a.offset
  %a.record = mul i64 %a, #RECORD#
  %record = getelementptr i8, ptr %records, i64 %a.record
  %fits = call i1 @fits(ptr %array, ptr %record)
  br i1 %fits, label %kind, label %no
kind:
  %written = icmp uge i64 %a, %inputs
  br i1 %written, label %others, label %following
others:
  %b = phi i64 [ 0, %kind ], [ %b.next, %other ]
  %another = icmp ult i64 %b, %a
  br i1 %another, label %other, label %following
other:
  %b.offset = shl i64 %b, 3
  %other.array = field ptr %args, %b.offset
  %b.record = mul i64 %b, #RECORD#
  %other.record = getelementptr i8, ptr %records, i64 %b.record
  %apart = call i1 @apart(ptr %array, ptr %record, ptr %other.array, ptr %other.record)
  %b.next = add i64 %b, 1
  br i1 %apart, label %others, label %no
following:
  %a.next = add i64 %a, 1
  br label %arrays
yes:
  ret i1 true
no:
  ret i1 false
}

; Put the arrays' addresses where the steps expect them.
define internal void @patch(ptr %table, ptr %args) nounwind {
  %first = field ptr %table, #PATCHES#
  %end = field ptr %table, #PATCHES_END#
  br label %patches
patches:
  %patch = phi ptr [ %first, %0 ], [ %next, %one ]
  %done = icmp eq ptr %patch, %end
  br i1 %done, label %exit, label %one
one:
  %number = field i64 %patch, #ARRAY#
  %offset = shl i64 %number, 3
  %array = field ptr %args, %offset
  %data = field ptr %array, #DATA#
  %cell = field ptr %patch, #CELL#
  store ptr %data, ptr %cell
  %next = getelementptr i8, ptr %patch, i64 #PATCH#
  br label %patches
exit:
  ret void
}

define internal void @steps(ptr %first, ptr %end, ptr %pool) nounwind {
  br label %steps
steps:
  %step = phi ptr [ %first, %0 ], [ %next, %alone ], [ %next, %shared ]
  %done = icmp eq ptr %step, %end
  br i1 %done, label %exit, label %one
one:
  %function = field ptr %step, #FUNCTION#
  %argument = field ptr %step, #ARGUMENT#
  %next = getelementptr i8, ptr %step, i64 #STEP#
  %mine = icmp ne ptr %function, null
  br i1 %mine, label %alone, label %shared
alone:
  call void %function(ptr %argument)
  br label %steps
shared:
  %run = field ptr %pool, #RUN#
  call void %run(ptr %pool, ptr %argument)
  br label %steps
exit:
  ret void
}

; Run the steps on arrays that fit; other threads may run Python meanwhile if the table says so.
define internal void @work(ptr %table, ptr %args, ptr %pool) nounwind {
  call void @patch(ptr %table, ptr %args)
  %first = field ptr %table, #STEPS#
  %end = field ptr %table, #STEPS_END#
  %releases = field i64 %table, #RELEASES#
  %long = icmp ne i64 %releases, 0
  br i1 %long, label %release, label %keep
release:
  %state.at = getelementptr i8, ptr %table, i64 #STATE#
  %state = call ptr @PyEval_SaveThread@()
  store ptr %state, ptr %state.at
  call void @steps(ptr %first, ptr %end, ptr %pool)
  %state.now = load ptr, ptr %state.at
  call void @PyEval_RestoreThread@(ptr %state.now)
  ret void
keep:
  call void @steps(ptr %first, ptr %end, ptr %pool)
  ret void
}

; The pool's workers are there, with enough scratch memory, or are not needed.
define internal i1 @manned(ptr %table, ptr %pool) nounwind {
  %scratch = field i64 %table, #SCRATCH#
  %needs = icmp ne i64 %scratch, 0
  br i1 %needs, label %look, label %yes
look:
  %there = icmp ne ptr %pool, null
  br i1 %there, label %ask, label %no
ask:
  %reserved = field i64 %pool, #RESERVED#
  %enough = icmp uge i64 %reserved, %scratch
  ret i1 %enough
yes:
  ret i1 true
no:
  ret i1 false
}

; A METH_FASTCALL function: True when the program ran on the arrays, False when nothing was done; null, an exception being
; set, when an interrupt came between two rounds of a loop.
define ptr @direct.call(ptr %self, ptr %args, i64 %count) nounwind {
  %table = field ptr %self, #DATA#
  %pool = load ptr, ptr @pool@
  %manned = call i1 @manned(ptr %table, ptr %pool)
  br i1 %manned, label %look, label %no
look:
  %arrays = alloca ptr, i64 %count
  %complete = call i1 @arrays(ptr %table, ptr %args, i64 %count, ptr %arrays)
  br i1 %complete, label %check, label %no
check:
  %accepts = call i1 @accepts(ptr %table, ptr %arrays, i64 %count)
  br i1 %accepts, label %claim, label %no
claim:
  %claimed = getelementptr i8, ptr %table, i64 #CLAIMED#
  %before = atomicrmw xchg ptr %claimed, i64 1 seq_cst
  %free = icmp eq i64 %before, 0
  br i1 %free, label %run, label %no
run:
  call void @work(ptr %table, ptr %arrays, ptr %pool)
  %stopped.at = getelementptr i8, ptr %table, i64 #STOPPED#
  %stopped = load i64, ptr %stopped.at
  store i64 0, ptr %stopped.at
  store atomic i64 0, ptr %claimed release, align 8
  %fine = icmp eq i64 %stopped, 0
  br i1 %fine, label %yes, label %raised
raised:
  ret ptr null
yes:
  call void @Py_IncRef@(ptr @True@)
  ret ptr @True@
no:
  call void @Py_IncRef@(ptr @False@)
  ret ptr @False@
}

; Put the address that something has in a round where the steps expect it; the end of its record.
define internal ptr @turn(ptr %turn, i64 %round) nounwind {
  %target = field ptr %turn, #TARGET#
  %first = field i64 %turn, #FIRST#
  %period = field i64 %turn, #PERIOD#
  %start = field i64 %turn, #START#
  %stride = field i64 %turn, #STRIDE#
  %places = getelementptr i8, ptr %turn, i64 #TURN#
  %early = icmp ult i64 %round, %first
  %again = urem i64 %round, %period
  %later = add i64 %first, %again
  %slot = select i1 %early, i64 %round, i64 %later
  %way = mul i64 %round, %stride
  %moved = add i64 %start, %way
  %offset = select i1 %early, i64 0, i64 %moved
  %place.at = getelementptr i64, ptr %places, i64 %slot
  %place = load ptr, ptr %place.at
  %address = getelementptr i8, ptr %place, i64 %offset
  store ptr %address, ptr %target
  %count = add i64 %first, %period
  %next = getelementptr i64, ptr %places, i64 %count
  ret ptr %next
}

; Whether an interrupt has come; then its exception is set. The program runs without the interpreter lock.
define internal i1 @interrupted(ptr %table) nounwind {
  %state.at = getelementptr i8, ptr %table, i64 #STATE#
  %state = load ptr, ptr %state.at
  call void @PyEval_RestoreThread@(ptr %state)
  %found = call i32 @PyErr_CheckSignals@()
  %state.next = call ptr @PyEval_SaveThread@()
  store ptr %state.next, ptr %state.at
  %none = icmp eq i32 %found, 0
  br i1 %none, label %no, label %yes
yes:
  %stopped.at = getelementptr i8, ptr %table, i64 #STOPPED#
  store i64 1, ptr %stopped.at
  ret i1 true
no:
  ret i1 false
}

; Step: the rounds of a loop.
define void @direct.loop(ptr %loop) nounwind {
  %rounds = field i64 %loop, #ROUNDS#
  %looks = field i64 %loop, #LOOKS#
  %table = field ptr %loop, #TABLE#
  %turns = field ptr %loop, #TURNS#
  %turns.end = field ptr %loop, #TURNS_END#
  %body = field ptr %loop, #BODY#
  %body.end = field ptr %loop, #BODY_END#
  %stopped.at = getelementptr i8, ptr %table, i64 #STOPPED#
  %pool = load ptr, ptr @pool@
  br label %rounds.next
rounds.next:
  %round = phi i64 [ 0, %0 ], [ %round.next, %on ], [ %round.next, %look ]
  %left = phi i64 [ %looks, %0 ], [ %left.next, %on ], [ %looks, %look ]
  %more = icmp ult i64 %round, %rounds
  br i1 %more, label %enter, label %exit
enter:
  %stopped = load i64, ptr %stopped.at
  %goes = icmp eq i64 %stopped, 0
  br i1 %goes, label %turning, label %exit
turning:
  %turn = phi ptr [ %turns, %enter ], [ %turn.next, %turn.one ]
  %turned = icmp eq ptr %turn, %turns.end
  br i1 %turned, label %run, label %turn.one
turn.one:
  %turn.next = call ptr @turn(ptr %turn, i64 %round)
  br label %turning
run:
  call void @steps(ptr %body, ptr %body.end, ptr %pool)
  %round.next = add i64 %round, 1
  %left.next = sub i64 %left, 1
  %due = icmp eq i64 %left.next, 0
  br i1 %due, label %look, label %on
on:
  br label %rounds.next
look:
  %stop = call i1 @interrupted(ptr %table)
  br i1 %stop, label %exit, label %rounds.next
exit:
  ret void
}

; Step: zero bytes; its argument is their address and number.
define void @direct.fill(ptr %words) nounwind {
  %target = field ptr %words, 0
  %bytes = field i64 %words, 8
  call void @llvm.memset.p0.i64(ptr %target, i8 0, i64 %bytes, i1 false)
  ret void
}

; Step: copy bytes, which may overlap; its argument is where to, where from and their number.
define void @direct.copy(ptr %words) nounwind {
  %target = field ptr %words, 0
  %source = field ptr %words, 8
  %bytes = field i64 %words, 16
  call void @llvm.memmove.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 false)
  ret void
}
"""
