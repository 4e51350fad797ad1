"""What a forked child finds, whatever other threads did at that moment. Each case is a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

LOCKS = """
import os, threading
from functools import cached_property
from tile_ir import forking

seen = []
forking.at_fork(lambda: seen.append("before"), lambda: seen.append("parent"), lambda: seen.append("child"))
locks = [forking.lock(), forking.rlock(), forking.condition()]
held, end = threading.Event(), threading.Event()

def hold():
    with locks[0], locks[1], locks[2]:
        held.set()
        end.wait()

threading.Thread(target=hold).start()
held.wait()
pid = os.fork()
if pid == 0:
    free = all(lock.acquire(timeout=60) for lock in locks)
    os._exit(0 if free and seen == ["before", "child"] else 1)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
taken = not any(lock.acquire(blocking=False) for lock in locks)
end.set()
print(status, taken, seen)
"""
OWN = """
import os
from tile_ir import forking

locks = [forking.rlock(), forking.condition()]
with locks[0], locks[1], locks[0]:
    pid = os.fork()  # in a signal's handler
if pid == 0:
    os._exit(0 if all(lock.acquire(blocking=False) for lock in locks) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
IMPORTS = """
import os, sys, threading
import tile_ir.forking

begun = threading.Event()
sys.begun = begun.set
threading.Thread(target=__import__, args=("slow",)).start()
begun.wait()
pid = os.fork()
if pid == 0:
    import slow
    os._exit(0 if slow.whole else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr


def test_locks_that_another_thread_holds_are_free_in_the_child_and_held_in_the_parent(tmp_path: Path) -> None:
    assert run(LOCKS, tmp_path) == "0 True ['before', 'parent']\n"


def test_a_fork_waits_for_the_import_of_another_thread(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import sys, time\nsys.begun()\ntime.sleep(0.3)\nwhole = True\n")
    assert run(IMPORTS, tmp_path) == "0\n"


def test_what_the_thread_holds_that_forks_it_holds_in_the_child(tmp_path: Path) -> None:
    assert run(OWN, tmp_path) == "0\n"
