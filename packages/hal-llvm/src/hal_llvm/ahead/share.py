"""Sharing a kernel's groups among threads that are started for it, as LLVM IR.

Nothing outlives a call: a library can be unloaded, and a process may fork between calls.
"""

from __future__ import annotations

TEAM_WORDS = 8
"""Of a team: kernel, parameters, groups, groups of a chunk, scratch memory, its bytes for each thread, next group, threads so far."""
MOST = 256
"""Threads at most."""

SHARE = """
define internal ptr @"NAME.worker"(ptr %team) nounwind {
  %function = load ptr, ptr %team
  %params.at = getelementptr i64, ptr %team, i64 1
  %params = load ptr, ptr %params.at
  %total.at = getelementptr i64, ptr %team, i64 2
  %total = load i64, ptr %total.at
  %grain.at = getelementptr i64, ptr %team, i64 3
  %grain = load i64, ptr %grain.at
  %base.at = getelementptr i64, ptr %team, i64 4
  %base = load ptr, ptr %base.at
  %each.at = getelementptr i64, ptr %team, i64 5
  %each = load i64, ptr %each.at
  %next.at = getelementptr i64, ptr %team, i64 6
  %number.at = getelementptr i64, ptr %team, i64 7
  %number = atomicrmw add ptr %number.at, i64 1 seq_cst
  %own = mul i64 %number, %each
  %scratch = getelementptr i8, ptr %base, i64 %own
  br label %look
look:
  %first = atomicrmw add ptr %next.at, i64 %grain seq_cst
  %some = icmp slt i64 %first, %total
  br i1 %some, label %work, label %done
work:
  %end = add i64 %first, %grain
  %over = icmp sgt i64 %end, %total
  %last = select i1 %over, i64 %total, i64 %end
  call void %function(ptr %params, i64 %first, i64 %last, ptr %scratch)
  br label %look
done:
  ret ptr null
}

define internal void @"NAME.share"(ptr %team, i64 %threads) nounwind {
  %handles = alloca [#MOST# x i64], align 8
  br label %start
start:
  %n = phi i64 [ 1, %0 ], [ %n.next, %started ]
  %more = icmp ult i64 %n, %threads
  br i1 %more, label %one, label %help
one:
  %handle = getelementptr i64, ptr %handles, i64 %n
  %problem = call i32 @pthread_create(ptr %handle, ptr null, ptr @"NAME.worker", ptr %team)
  %fine = icmp eq i32 %problem, 0
  br i1 %fine, label %started, label %help
started:
  %n.next = add i64 %n, 1
  br label %start
help:
  %ignored = call ptr @"NAME.worker"(ptr %team)
  br label %join
join:
  %j = phi i64 [ 1, %help ], [ %j.next, %joined ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %joined, label %done
joined:
  %joins = getelementptr i64, ptr %handles, i64 %j
  %thread = load i64, ptr %joins
  %gone = call i32 @pthread_join(i64 %thread, ptr null)
  %j.next = add i64 %j, 1
  br label %join
done:
  ret void
}
""".replace("#MOST#", str(MOST))
