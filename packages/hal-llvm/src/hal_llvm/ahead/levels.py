"""What code is written for: levels of instructions, and how code asks whether a processor has them.

Code is generated for features of this table alone, so that all it may use is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from hal_llvm import binding
from hal_llvm.cpu import present


class Bit(NamedTuple):
    """Where x86's ``cpuid`` says that a feature is there."""

    leaf: int
    subleaf: int
    register: int
    """0 to 3: eax, ebx, ecx, edx."""
    bit: int


_LEAVES: Mapping[tuple[int, int, int], Mapping[str, int]] = {
    (1, 0, 2): {
        "sse3": 0, "ssse3": 9, "fma": 12, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "movbe": 22, "popcnt": 23,
        "xsave": 26, "avx": 28, "f16c": 29,
    },
    (7, 0, 1): {
        "bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "avx512ifma": 21, "avx512cd": 28,
        "avx512bw": 30, "avx512vl": 31,
    },
    (7, 0, 2): {"avx512vbmi": 1, "avx512vbmi2": 6, "avx512vnni": 11, "avx512bitalg": 12, "avx512vpopcntdq": 14},
    (7, 1, 0): {"avxvnni": 4, "avx512bf16": 5},
    (0x80000001, 0, 2): {"sahf": 0, "lzcnt": 5},
}  # fmt: skip
X86: Mapping[str, Bit] = {
    name: Bit(*place, bit) for place, features in _LEAVES.items() for name, bit in features.items()
}
ARM: Mapping[str, tuple[int, int]] = {"dotprod": (16, 20), "fullfp16": (16, 10), "i8mm": (26, 13), "bf16": (26, 14)}
"""Linux: which entry of the auxiliary vector has a feature's bit."""

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_LEVELS: Mapping[str, tuple[str, ...]] = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}

HOST, BASELINE = "host", "baseline"
OTHERS: Mapping[str, binding.Processor] = {
    "aarch64-linux": binding.Processor("aarch64-unknown-linux-gnu", "generic", ""),
    "x86-64-linux": binding.Processor("x86_64-unknown-linux-gnu", "x86-64", ""),
}
"""Every processor of another architecture, by what libraries for it are called."""


def is_x86(triple: str) -> bool:
    return triple.startswith("x86_64")


def names(triple: str) -> Mapping[str, str]:
    """The levels that there are for a triple, with a sentence on each."""
    found = {
        HOST: "this machine's processor, and those with all of its instructions",
        BASELINE: "every processor of this architecture",
    }
    if is_x86(triple):
        found |= {name: f"processors of the level {name} (-march={name})" for name in _LEVELS}
    here = triple.partition("-")[0]
    return found | {
        name: f"every {name.removesuffix('-linux')} processor with Linux, built from here"
        for name, other in OTHERS.items()
        if not other.triple.startswith(f"{here}-")
    }


def processor(name: str) -> binding.Processor:
    """What LLVM generates code for."""
    if name in OTHERS:
        return OTHERS[name]
    host = binding.host()
    known: Collection[str] = X86 if is_x86(host.triple) else ARM if "linux" in host.triple else ()
    wanted = sorted(present(host.features).intersection(known)) if name == HOST else _LEVELS.get(name, ())
    return binding.Processor(
        host.triple, "x86-64" if is_x86(host.triple) else "generic", ",".join(f"+{f}" for f in wanted)
    )


def plain(processor: binding.Processor) -> binding.Processor:
    """The processor that may run the code which asks."""
    return binding.Processor(processor.triple, processor.cpu, "")


def fits_ir(name: str, processor: binding.Processor) -> str:
    """IR of ``i32 @name.fits()``: not 0 on a processor with all the features; it asks once."""
    features = present(processor.features)
    if not features:
        return f'define internal i32 @"{name}.fits"() nounwind {{\n  ret i32 1\n}}\n'
    asks = _asks_x86(features) if is_x86(processor.triple) else _asks_arm(features)
    return _ONCE.replace("NAME", name).replace("ASKS", asks)


_ONCE = """
@"NAME.known" = internal global i32 0
declare i64 @getauxval(i64)

define internal i32 @"NAME.fits"() nounwind {
  %known = load atomic i32, ptr @"NAME.known" monotonic, align 4
  %asked = icmp ne i32 %known, 0
  br i1 %asked, label %answer, label %ask
answer:
  %fits = icmp eq i32 %known, 1
  %as.int = zext i1 %fits to i32
  ret i32 %as.int
ask:
ASKS
yes:
  store atomic i32 1, ptr @"NAME.known" monotonic, align 4
  ret i32 1
no:
  store atomic i32 2, ptr @"NAME.known" monotonic, align 4
  ret i32 0
}
"""

_CPUID = (
    'call {{ i32, i32, i32, i32 }} asm "cpuid", "={{ax}},={{bx}},={{cx}},={{dx}},{{ax}},{{cx}},~{{dirflag}},~{{fpsr}},~{{flags}}"'
    "(i32 {leaf}, i32 {subleaf})"
)
_XGETBV = (
    '  %state = call { i32, i32 } asm ".byte 0x0f, 0x01, 0xd0", "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"(i32 0)\n'
    "  %enabled = extractvalue { i32, i32 } %state, 0"
)
_OSXSAVE, _AVX_STATE, _AVX512_STATE = 27, 0x06, 0xE6


def _asks_x86(features: Collection[str]) -> str:
    masks: defaultdict[tuple[int, int, int], int] = defaultdict(int)
    for feature in features:
        at = X86[feature]
        masks[at.leaf, at.subleaf, at.register] |= 1 << at.bit
    if "avx" in features:
        masks[1, 0, 2] |= 1 << _OSXSAVE
    lines: list[str] = []
    for number, ((leaf, subleaf, register), mask) in enumerate(sorted(masks.items())):
        if leaf == 7:  # smaller ones are answered by every processor; this one with rubbish where it is not there
            lines += _least(f"most{number}", _CPUID.format(leaf=0, subleaf=0), 7)
            if subleaf:
                lines += _least(f"sub{number}", _CPUID.format(leaf=7, subleaf=0), subleaf)
        lines.append(f"  %r{number} = {_CPUID.format(leaf=leaf, subleaf=subleaf)}")
        lines.append(f"  %v{number} = extractvalue {{ i32, i32, i32, i32 }} %r{number}, {register}")
        lines += _has(f"{number}", f"%v{number}", mask)
    if "avx" in features:  # asked last: the instruction is there when the bits above are
        lines.append(_XGETBV)
        lines += _has("os", "%enabled", _AVX512_STATE if "avx512f" in features else _AVX_STATE)
    return "\n".join([*lines, "  br label %yes"])


def _least(label: str, call: str, least: int) -> list[str]:
    """The first register of a call is at least so much."""
    return [
        f"  %{label}.all = {call}",
        f"  %{label}.first = extractvalue {{ i32, i32, i32, i32 }} %{label}.all, 0",
        f"  %{label}.is = icmp uge i32 %{label}.first, {least}",
        f"  br i1 %{label}.is, label %{label}, label %no",
        f"{label}:",
    ]


def _has(label: str, value: str, mask: int, kind: str = "i32") -> list[str]:
    """All bits of the mask are set."""
    return [
        f"  %m{label} = and {kind} {value}, {mask}",
        f"  %h{label} = icmp eq {kind} %m{label}, {mask}",
        f"  br i1 %h{label}, label %has{label}, label %no",
        f"has{label}:",
    ]


def _asks_arm(features: Collection[str]) -> str:
    masks: defaultdict[int, int] = defaultdict(int)
    for feature in features:
        entry, bit = ARM[feature]
        masks[entry] |= 1 << bit
    lines: list[str] = []
    for entry, mask in sorted(masks.items()):
        lines.append(f"  %v{entry} = call i64 @getauxval(i64 {entry})")
        lines += _has(f"{entry}", f"%v{entry}", mask, "i64")
    return "\n".join([*lines, "  br label %yes"])
