"""The thread pool's native part, as LLVM IR: workers never touch the interpreter.

Memory layout (bytes): a header, `SLOTS` job slots, then one record per worker. A caller claims a slot,
publishes its job, wakes sleeping workers, takes chunks itself until none is left, closes the slot and waits until
the last worker has left it. Every thread has a home, a run of chunks that it takes first, so that it meets what it
left in its caches when the same work comes again; then it takes what is left of the others' homes. Chunks of a home are
handed out by an atomic counter, so a worker that never gets a processor delays nobody. A worker enters by counting
itself in `refs` *before* it looks at `open`; a slot is reused only when it is closed and `refs` is zero. Nobody takes
another chunk of a job that is told to stop.
"""

from __future__ import annotations

SLOTS = 8
HOMES = 8
"""Homes of a job at most: further threads share them."""
HOME_BYTES = 64
HOMES_AT = 256
SLOT_BYTES = HOMES_AT + HOMES * HOME_BYTES
SLOTS_AT = 256
WORKERS_AT = SLOTS_AT + SLOTS * SLOT_BYTES
WORKER_BYTES = 128
MASK_AT = 64
MASK_BYTES = 128

# Header fields
STOP, WORKERS, SPIN, PIN, RESERVED, RUN = 0, 4, 8, 12, 16, 24
# Slot fields (`OPEN`, `EMPTY` and `REFS` on cache lines of their own, and each home's counter)
CLAIMED, FN, PARAMS, TOTAL, GRAIN, HOME = 0, 8, 16, 24, 32, 40
OPEN, EMPTY, REFS, WAITING, SLOT_SEM = 64, 128, 192, 196, 208
# Worker fields
SLEEPING, SCRATCH, THREAD, EXCLUDED, WORKER_SEM, POOL = 0, 8, 16, 24, 32, 72
# Job fields, written by Python
JOB_FN, JOB_TOTAL, JOB_GRAIN, JOB_WANT, JOB_STOP, JOB_SCRATCH, JOB_PARAMS = 0, 8, 16, 24, 32, 40, 48

_PAUSES = {"x86": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
_PAUSE_DECLARATIONS = {"x86": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}


def pool_ir(triple: str, system: str) -> str:
    """IR of ``pool.worker(ptr worker) -> ptr`` (a thread's body) and ``pool.run(ptr pool, ptr job)``.

    `system` defines what they call of the operating system: see `systems`.
    """
    kind = "x86" if triple.startswith(("x86_64", "i686")) else ""
    kind = "aarch64" if triple.startswith(("aarch64", "arm64")) else kind
    text = (system + _TEMPLATE).replace("PAUSE_DECLARATION", _PAUSE_DECLARATIONS.get(kind, ""))
    text = text.replace("PAUSE", _PAUSES.get(kind, ""))
    for name, value in _OFFSETS.items():
        text = text.replace(f"#{name}#", str(value))
    return text


_OFFSETS = {
    "STOP": STOP, "WORKERS": WORKERS, "SPIN": SPIN, "PIN": PIN, "CLAIMED": CLAIMED, "FN": FN, "PARAMS": PARAMS,
    "TOTAL": TOTAL, "GRAIN": GRAIN, "HOME": HOME, "OPEN": OPEN, "EMPTY": EMPTY, "REFS": REFS, "WAITING": WAITING,
    "SLOT_SEM": SLOT_SEM, "SLEEPING": SLEEPING, "SCRATCH": SCRATCH, "THREAD": THREAD, "EXCLUDED": EXCLUDED,
    "WORKER_SEM": WORKER_SEM, "POOL": POOL, "JOB_FN": JOB_FN, "JOB_TOTAL": JOB_TOTAL, "JOB_GRAIN": JOB_GRAIN,
    "JOB_WANT": JOB_WANT, "JOB_SCRATCH": JOB_SCRATCH, "JOB_PARAMS": JOB_PARAMS, "SLOTS": SLOTS,
    "TO_STOP": JOB_STOP - JOB_PARAMS, "HOMES": HOMES, "HOMES_AT": HOMES_AT, "HOME_BYTES": HOME_BYTES,
    "SLOT_BYTES": SLOT_BYTES, "SLOTS_AT": SLOTS_AT, "WORKERS_AT": WORKERS_AT, "WORKER_BYTES": WORKER_BYTES,
    "MASK_AT": MASK_AT, "MASK_BYTES": MASK_BYTES,
}  # fmt: skip

_TEMPLATE = """
PAUSE_DECLARATION

; How many homes the jobs of the pool have.
define internal i64 @homes(ptr %pool) nounwind {
  %workers.p = getelementptr i8, ptr %pool, i64 #WORKERS#
  %workers = load i32, ptr %workers.p
  %threads = add i32 %workers, 1
  %few = icmp ult i32 %threads, #HOMES#
  %homes = select i1 %few, i32 %threads, i32 #HOMES#
  %wide = zext i32 %homes to i64
  ret i64 %wide
}

; Take chunks of the slot's job until none is left, those of thread number `self`'s home first.
define internal void @chunks(ptr %pool, ptr %slot, ptr %scratch, i64 %self) nounwind {
  %fn.p = getelementptr i8, ptr %slot, i64 #FN#
  %fn = load ptr, ptr %fn.p
  %params.p = getelementptr i8, ptr %slot, i64 #PARAMS#
  %params = load ptr, ptr %params.p
  %total.p = getelementptr i8, ptr %slot, i64 #TOTAL#
  %total = load i64, ptr %total.p
  %grain.p = getelementptr i8, ptr %slot, i64 #GRAIN#
  %grain = load i64, ptr %grain.p
  %size.p = getelementptr i8, ptr %slot, i64 #HOME#
  %size = load i64, ptr %size.p
  %homes = call i64 @homes(ptr %pool)
  %stop = getelementptr i8, ptr %params, i64 #TO_STOP#
  br label %visit
visit:
  %k = phi i64 [ 0, %0 ], [ %k.next, %left ]
  %number = add i64 %self, %k
  %home = urem i64 %number, %homes
  %low = mul i64 %home, %size
  %end.full = add i64 %low, %size
  %short = icmp sgt i64 %end.full, %total
  %high = select i1 %short, i64 %total, i64 %end.full
  %offset = mul i64 %home, #HOME_BYTES#
  %at = add i64 %offset, #HOMES_AT#
  %next = getelementptr i8, ptr %slot, i64 %at
  br label %look
look:
  %told = load atomic i64, ptr %stop monotonic, align 8
  %go = icmp eq i64 %told, 0
  br i1 %go, label %try, label %done
try:
  %seen = load atomic i64, ptr %next monotonic, align 8
  %gone = icmp sge i64 %seen, %size
  br i1 %gone, label %left, label %take
take:
  %taken = atomicrmw add ptr %next, i64 %grain seq_cst
  %first = add i64 %low, %taken
  %some = icmp slt i64 %first, %high
  br i1 %some, label %work, label %left
work:
  %end = add i64 %first, %grain
  %over = icmp sgt i64 %end, %high
  %last = select i1 %over, i64 %high, i64 %end
  call void %fn(ptr %params, i64 %first, i64 %last, ptr %scratch)
  br label %look
left:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %homes
  br i1 %more, label %visit, label %done
done:
  %empty = getelementptr i8, ptr %slot, i64 #EMPTY#
  store atomic i32 1, ptr %empty monotonic, align 4
  ret void
}

; One look at every slot; true when a job was helped.
define internal i1 @scan(ptr %pool, ptr %worker) nounwind {
  %slots = getelementptr i8, ptr %pool, i64 #SLOTS_AT#
  %scratch.p = getelementptr i8, ptr %worker, i64 #SCRATCH#
  %here = ptrtoint ptr %worker to i64
  %base = ptrtoint ptr %pool to i64
  %apart = sub i64 %here, %base
  %mine.at = sub i64 %apart, #WORKERS_AT#
  %index = udiv i64 %mine.at, #WORKER_BYTES#
  %self = add i64 %index, 1
  br label %look
look:
  %s = phi i64 [ 0, %0 ], [ %s.next, %following ]
  %found = phi i1 [ false, %0 ], [ %found.next, %following ]
  %offset = mul i64 %s, #SLOT_BYTES#
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %open = getelementptr i8, ptr %slot, i64 #OPEN#
  %refs = getelementptr i8, ptr %slot, i64 #REFS#
  %hint = load atomic i32, ptr %open monotonic, align 4
  %closed = icmp eq i32 %hint, 0
  br i1 %closed, label %following, label %left
left:
  %empty.p = getelementptr i8, ptr %slot, i64 #EMPTY#
  %empty = load atomic i32, ptr %empty.p monotonic, align 4
  %some = icmp eq i32 %empty, 0
  br i1 %some, label %enter, label %following
enter:
  atomicrmw add ptr %refs, i32 1 seq_cst
  %really = load atomic i32, ptr %open seq_cst, align 4
  %yes = icmp ne i32 %really, 0
  br i1 %yes, label %help, label %leave
help:
  %scratch = load ptr, ptr %scratch.p
  call void @chunks(ptr %pool, ptr %slot, ptr %scratch, i64 %self)
  br label %leave
leave:
  %helped = phi i1 [ false, %enter ], [ true, %help ]
  %before = atomicrmw sub ptr %refs, i32 1 seq_cst
  %now = or i1 %found, %helped
  %lone = icmp eq i32 %before, 1
  br i1 %lone, label %tell, label %following
tell:
  %waiting = getelementptr i8, ptr %slot, i64 #WAITING#
  %is = load atomic i32, ptr %waiting seq_cst, align 4
  %waits = icmp ne i32 %is, 0
  br i1 %waits, label %claim, label %following
claim:
  %was = atomicrmw xchg ptr %waiting, i32 0 seq_cst
  %mine = icmp ne i32 %was, 0
  br i1 %mine, label %post, label %following
post:
  %sem = getelementptr i8, ptr %slot, i64 #SLOT_SEM#
  call void @post(ptr %sem)
  br label %following
following:
  %found.next = phi i1 [ %found, %look ], [ %found, %left ], [ %now, %leave ], [ %now, %tell ], [ %now, %claim ], [ %now, %post ]
  %s.next = add i64 %s, 1
  %more = icmp ult i64 %s.next, #SLOTS#
  br i1 %more, label %look, label %done
done:
  ret i1 %found.next
}

define ptr @pool.worker(ptr %worker) nounwind {
  %pool.p = getelementptr i8, ptr %worker, i64 #POOL#
  %pool = load ptr, ptr %pool.p
  %stop = getelementptr i8, ptr %pool, i64 #STOP#
  %spin.p = getelementptr i8, ptr %pool, i64 #SPIN#
  %spin = load i32, ptr %spin.p
  %sleeping = getelementptr i8, ptr %worker, i64 #SLEEPING#
  %sem = getelementptr i8, ptr %worker, i64 #WORKER_SEM#
  br label %loop
loop:
  %idle = phi i32 [ 0, %0 ], [ 0, %fresh ], [ %idle.next, %rest ]
  %stopped = load atomic i32, ptr %stop seq_cst, align 4
  %end = icmp ne i32 %stopped, 0
  br i1 %end, label %exit, label %work
work:
  %found = call i1 @scan(ptr %pool, ptr %worker)
  br i1 %found, label %fresh, label %tired
fresh:
  br label %loop
tired:
  %patience = icmp ult i32 %idle, %spin
  br i1 %patience, label %rest, label %sleep
rest:
  PAUSE
  %idle.next = add i32 %idle, 1
  br label %loop
sleep:
  %ignored = atomicrmw xchg ptr %sleeping, i32 1 seq_cst
  ; Look once more: a job published before `sleeping` was set wakes nobody.
  %late = call i1 @scan(ptr %pool, ptr %worker)
  %stopping = load atomic i32, ptr %stop seq_cst, align 4
  %ended = icmp ne i32 %stopping, 0
  %stay = or i1 %late, %ended
  br i1 %stay, label %awake, label %wait
wait:
  call void @wait(ptr %sem)
  br label %awake
awake:
  %ignored.too = atomicrmw xchg ptr %sleeping, i32 0 seq_cst
  br label %fresh
exit:
  ret ptr null
}

define internal void @wake(ptr %pool, i64 %want) nounwind {
  %workers.p = getelementptr i8, ptr %pool, i64 #WORKERS#
  %count32 = load i32, ptr %workers.p
  %count = zext i32 %count32 to i64
  %pin.p = getelementptr i8, ptr %pool, i64 #PIN#
  %pin = load i32, ptr %pin.p
  %pins = icmp ne i32 %pin, 0
  %fewer = icmp ult i64 %want, %count
  %limit = select i1 %fewer, i64 %want, i64 %count
  %base = getelementptr i8, ptr %pool, i64 #WORKERS_AT#
  %any = icmp ne i64 %limit, 0
  br i1 %any, label %look, label %done
look:
  %w = phi i64 [ 0, %0 ], [ %w.next, %following ]
  %offset = mul i64 %w, #WORKER_BYTES#
  %worker = getelementptr i8, ptr %base, i64 %offset
  %sleeping = getelementptr i8, ptr %worker, i64 #SLEEPING#
  %is = load atomic i32, ptr %sleeping seq_cst, align 4
  %sleeps = icmp ne i32 %is, 0
  br i1 %sleeps, label %claim, label %following
claim:
  %was = atomicrmw xchg ptr %sleeping, i32 0 seq_cst
  %mine = icmp ne i32 %was, 0
  br i1 %mine, label %rouse, label %following
rouse:
  br i1 %pins, label %aside, label %post
aside:
  call void @aside(ptr %pool, ptr %worker)
  br label %post
post:
  %sem = getelementptr i8, ptr %worker, i64 #WORKER_SEM#
  call void @post(ptr %sem)
  br label %following
following:
  %w.next = add i64 %w, 1
  %more = icmp ult i64 %w.next, %limit
  br i1 %more, label %look, label %done
done:
  ret void
}

define void @pool.run(ptr %pool, ptr %job) nounwind {
  %fn.p = getelementptr i8, ptr %job, i64 #JOB_FN#
  %fn = load ptr, ptr %fn.p
  %total.p = getelementptr i8, ptr %job, i64 #JOB_TOTAL#
  %total = load i64, ptr %total.p
  %grain.p = getelementptr i8, ptr %job, i64 #JOB_GRAIN#
  %grain = load i64, ptr %grain.p
  %want.p = getelementptr i8, ptr %job, i64 #JOB_WANT#
  %want = load i64, ptr %want.p
  %scratch.p = getelementptr i8, ptr %job, i64 #JOB_SCRATCH#
  %scratch = load ptr, ptr %scratch.p
  %params = getelementptr i8, ptr %job, i64 #JOB_PARAMS#
  %slots = getelementptr i8, ptr %pool, i64 #SLOTS_AT#
  br label %search
search:
  %s = phi i64 [ 0, %0 ], [ %s.next, %taken ]
  %offset = mul i64 %s, #SLOT_BYTES#
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %claimed = getelementptr i8, ptr %slot, i64 #CLAIMED#
  %pair = cmpxchg ptr %claimed, i32 0, i32 1 seq_cst seq_cst
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %publish, label %taken
taken:
  %s.next = add i64 %s, 1
  %more = icmp ult i64 %s.next, #SLOTS#
  br i1 %more, label %search, label %alone
alone:
  call void %fn(ptr %params, i64 0, i64 %total, ptr %scratch)
  ret void
publish:
  %sfn = getelementptr i8, ptr %slot, i64 #FN#
  store ptr %fn, ptr %sfn
  %sparams = getelementptr i8, ptr %slot, i64 #PARAMS#
  store ptr %params, ptr %sparams
  %stotal = getelementptr i8, ptr %slot, i64 #TOTAL#
  store atomic i64 %total, ptr %stotal monotonic, align 8
  %sgrain = getelementptr i8, ptr %slot, i64 #GRAIN#
  store i64 %grain, ptr %sgrain
  %homes = call i64 @homes(ptr %pool)
  %step = mul i64 %grain, %homes
  %up = add i64 %total, %step
  %up.less = sub i64 %up, 1
  %each = udiv i64 %up.less, %step
  %size = mul i64 %each, %grain
  %ssize = getelementptr i8, ptr %slot, i64 #HOME#
  store i64 %size, ptr %ssize
  %empty = getelementptr i8, ptr %slot, i64 #EMPTY#
  store atomic i32 0, ptr %empty monotonic, align 4
  br label %reset
reset:
  %h = phi i64 [ 0, %publish ], [ %h.next, %reset ]
  %h.offset = mul i64 %h, #HOME_BYTES#
  %h.at = add i64 %h.offset, #HOMES_AT#
  %counter = getelementptr i8, ptr %slot, i64 %h.at
  store atomic i64 0, ptr %counter monotonic, align 8
  %h.next = add i64 %h, 1
  %h.more = icmp ult i64 %h.next, %homes
  br i1 %h.more, label %reset, label %ready
ready:
  %open = getelementptr i8, ptr %slot, i64 #OPEN#
  %o = atomicrmw xchg ptr %open, i32 1 seq_cst
  call void @wake(ptr %pool, i64 %want)
  call void @chunks(ptr %pool, ptr %slot, ptr %scratch, i64 0)
  %c = atomicrmw xchg ptr %open, i32 0 seq_cst
  %refs = getelementptr i8, ptr %slot, i64 #REFS#
  %waiting = getelementptr i8, ptr %slot, i64 #WAITING#
  %sem = getelementptr i8, ptr %slot, i64 #SLOT_SEM#
  %spin.p = getelementptr i8, ptr %pool, i64 #SPIN#
  %spin = load i32, ptr %spin.p
  br label %check
check:
  %n = phi i32 [ 0, %ready ], [ %n.next, %rest ], [ 0, %awake ]
  %busy = load atomic i32, ptr %refs seq_cst, align 4
  %left = icmp eq i32 %busy, 0
  br i1 %left, label %release, label %again
again:
  %patience = icmp ult i32 %n, %spin
  br i1 %patience, label %rest, label %sleep
rest:
  PAUSE
  %n.next = add i32 %n, 1
  br label %check
sleep:
  call void @release(ptr %pool)
  %a = atomicrmw xchg ptr %waiting, i32 1 seq_cst
  %still = load atomic i32, ptr %refs seq_cst, align 4
  %none = icmp eq i32 %still, 0
  br i1 %none, label %awake, label %wait
wait:
  call void @wait(ptr %sem)
  br label %awake
awake:
  %b = atomicrmw xchg ptr %waiting, i32 0 seq_cst
  br label %check
release:
  store atomic i32 0, ptr %claimed release, align 4
  ret void
}
"""
