"""What the system says of caches, pages and features, from made-up system trees."""

from __future__ import annotations

from pathlib import Path

import pytest
from hal_llvm.caches import bounded, processors, system_caches
from hal_llvm.cpu import FAMILIES, family_target, host_target, known_machine
from tile_ir.machine import Cache, Machine
from tile_ir.target import Target

X86 = "x86_64-unknown-linux-gnu"
AVX512 = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma"
ZEN4 = f"{AVX512},+avx512bf16,+sse4a,-amx-tile,-avx512vp2intersect"
XEON = f"{AVX512},+avx512bf16,+amx-tile,+amx-bf16,-sse4a"

Level = tuple[int, str, str, int, int, str]
"""Level, type, size, ways, line, processors that share it."""


def tree(root: Path, levels: list[Level], cpu: int = 0, **files: str) -> Path:
    """A system tree with the caches of one processor."""
    names = ("level", "type", "size", "ways_of_associativity", "coherency_line_size", "shared_cpu_list")
    for number, values in enumerate(levels):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{number}"
        folder.mkdir(parents=True)
        for name, value in zip(names, values, strict=True):
            (folder / name).write_text(f"{value}\n")
    for path, text in files.items():
        target = root / path.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


DESKTOP: list[Level] = [
    (1, "Data", "32K", 8, 64, "0,8"),
    (1, "Instruction", "32K", 8, 64, "0,8"),
    (2, "Unified", "1024K", 8, 64, "0,8"),
    (3, "Unified", "32768K", 16, 64, "0-15"),
]
CLOUD: list[Level] = [
    (1, "Data", "48K", 12, 64, "0"),
    (1, "Instruction", "64K", 16, 64, "0"),
    (2, "Unified", "2M", 16, 64, "0"),
    (3, "Unified", "491520K", 0, 64, "0-1"),
]


def test_caches_have_ways_lines_and_sharing(tmp_path: Path) -> None:
    assert system_caches(0, range(16), tree(tmp_path, DESKTOP)) == [
        Cache(1, 32 << 10, 8, 64, shared=2),
        Cache(2, 1 << 20, 8, 64, shared=2),
        Cache(3, 32 << 20, 16, 64, shared=16),
    ]


def test_only_processors_of_this_process_share(tmp_path: Path) -> None:
    assert [c.shared for c in system_caches(0, [0, 1, 2], tree(tmp_path, DESKTOP))] == [1, 1, 3]


def test_a_hosts_whole_cache_is_not_taken_for_one_machines(tmp_path: Path) -> None:
    target = host_target(X86, XEON, 2, [0, 1], tree(tmp_path, CLOUD))
    assert [c.bytes for c in target.machine.caches] == [48 << 10, 2 << 20, 32 << 20]
    assert [c.ways for c in target.machine.caches] == [12, 16, 16]  # the system did not say how the last one is made
    assert (target.settings.l1_bytes, target.settings.l2_bytes, target.settings.l3_bytes) == (49152, 2 << 20, 32 << 20)
    assert target.settings.max_mem == 49152 and target.settings.cores == target.machine.cores == 2


def test_of_a_hosts_whole_cache_sixteen_processors_have_sixteen_shares(tmp_path: Path) -> None:
    machine = host_target(
        X86, XEON, 2, range(16), tree(tmp_path, [*CLOUD[:3], (3, "Unified", "307200K", 20, 64, "0-15")])
    ).machine
    assert [(c.bytes, c.straddle) for c in machine.caches[1:]] == [(2 << 20, 6), (16 * 6 << 20, 40)]


@pytest.mark.parametrize("cpus", [range(16), range(2)])
def test_an_honest_cache_stays_as_it_is(tmp_path: Path, cpus: range) -> None:
    machine = host_target(X86, ZEN4, len(cpus), cpus, tree(tmp_path, DESKTOP)).machine
    shared = [1 if len(cpus) == 2 else 2, len(cpus)]
    assert [(c.bytes, c.shared) for c in machine.caches[1:]] == [(1 << 20, shared[0]), (32 << 20, shared[1])]


def test_a_private_second_level_is_never_cut() -> None:
    levels = (Cache(1, 32 << 10), Cache(2, 16 << 20))
    assert bounded(levels) == levels


def test_features_decide_and_not_names() -> None:
    base = family_target("avx512").machine
    assert known_machine(base, ZEN4).vector.native == 32 and known_machine(base, XEON).vector.native == 0
    assert known_machine(base, AVX512) == base
    assert known_machine(base, f"{ZEN4},+avx512vp2intersect".replace("-avx512vp2intersect", "")) == base
    assert known_machine(base, XEON).cache(2) == Cache(2, 2 << 20, 16, 64, 0, 15, 44, 32, 2, straddle=6)


@pytest.mark.parametrize(
    ("huge", "from_"), [("always [madvise] never", 4 << 20), ("[always] madvise never", 2 << 20), ("always madvise [never]", 0), ("", 0)]
)  # fmt: skip
def test_huge_pages(tmp_path: Path, huge: str, from_: int) -> None:
    root = tree(tmp_path, DESKTOP, sys__kernel__mm__transparent_hugepage__enabled=huge)
    assert host_target(X86, ZEN4, 1, [0], root).machine.pages.huge_from == from_


def test_the_first_of_the_processors_that_are_ours_is_asked(tmp_path: Path) -> None:
    root = tree(tree(tmp_path, DESKTOP), [(1, "Data", "64K", 16, 128, "3")], cpu=3)
    (tmp_path / "sys/devices/system/cpu/cpu3/cpufreq").mkdir()
    (tmp_path / "sys/devices/system/cpu/cpu3/cpufreq/cpuinfo_max_freq").write_text("4200000\n")
    machine = host_target(X86, ZEN4, 1, [3], root).machine
    assert (machine.cache(1), machine.clock_ghz) == (Cache(1, 64 << 10, 16, 128, 0, 7, 64, 32), 4.2)


@pytest.mark.parametrize("broken", ["", "plenty", "0K", "-4K", "4T"])
def test_a_system_that_tells_nonsense_leaves_the_document(tmp_path: Path, broken: str) -> None:
    root = tree(tmp_path, [(1, "Data", broken, 8, 64, "0"), (2, "Unified", "1M", 8, 64, "zero")])
    machine = host_target(X86, AVX512, 1, [0], root).machine
    assert machine.cache(1) == family_target("avx512").machine.cache(1)
    assert machine.cache(2) == Cache(2, 1 << 20, 8, 64, 0, 15, 44, 32, 2)


def test_no_system_tree_at_all(tmp_path: Path) -> None:
    machine = host_target(X86, AVX512, 4, [], tmp_path).machine
    assert machine.cores == 4 and machine.pages.huge_from == 0 and len(machine.caches) == 3


def test_lists_of_processors() -> None:
    assert processors("0-3,8\n") == {0, 1, 2, 3, 8} and processors("") == set()


@pytest.mark.parametrize("name", FAMILIES)
def test_documents_agree_with_themselves(name: str) -> None:
    target = family_target(name)
    vector, settings = target.machine.vector, target.settings
    assert (vector.registers, vector.bytes) == (settings.registers, settings.vector_bytes)
    assert Target.from_json(target.to_json()) == target and target.machine != Machine()
    assert target.machine.cache(1) is not None and not target.machine.is_gpu
