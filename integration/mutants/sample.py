"""Mutants of the sample plugin and of what it is made of: the C prelude, its printer, host kernels, queues and libraries."""

from __future__ import annotations

from mutants.mutant import Mutant

DEVICE = "integration/plugins/tile-sample/src/tile_sample/device.py"
PRELUDE = "packages/tile-ir/src/tile_ir/emit/c99_prelude.py"
PRINTER = "packages/tile-ir/src/tile_ir/emit/c99.py"
HOST = "packages/tile-hal/src/tile_hal/host_device.py"
QUEUE = "packages/tile-hal/src/tile_hal/host_queue.py"
OBJECT = "packages/tile-hal/src/tile_hal/shared_object.py"

MUTANTS = (
    # what an author of a C device gets wrong first
    Mutant("shifts beyond the width are C's", PRELUDE, '("bit_left", Kind.SIGNED): (_BY, "return n >= 0 && n < {W} ? ({T})(({U})a << n) : 0;")', '("bit_left", Kind.SIGNED): (_BY, "return ({T})(({U})a << (n & ({W} - 1)));")'),
    Mutant("unsigned shifts beyond the width are C's", PRELUDE, '("bit_right", Kind.UNSIGNED): (_BY, "return n >= 0 && n < {W} ? ({T})(a >> n) : 0;")', '("bit_right", Kind.UNSIGNED): (_BY, "return ({T})(a >> (n & ({W} - 1)));")'),
    Mutant("max and min lose NaN", PRELUDE, 'f"return a {sign} b || a != a ? a : b;"', 'f"return a {sign} b ? a : b;"'),
    Mutant("division by the reciprocal", PRINTER, "            case Unary(op, _, t) | Binary(op, _, _, t):\n", '            case Binary("div", a, b, t) if t.dtype is DType.FLOAT32 and a != Const(1.0, t):\n                return self.expand(Binary("mul", a, Binary("div", Const(1.0, t), b, t), t))\n            case Unary(op, _, t) | Binary(op, _, _, t):\n'),
    Mutant("bfloat16 is truncated", PRELUDE, "    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);", "    return (uint16_t)(bits >> 16);"),
    Mutant("casts to integers do not saturate", PRELUDE, '"return x != x ? 0 : x >= {above} ? {high} : x < {low} ? {least} : ({T})x;"', '"return ({T})x;"'),
    Mutant("casts of NaN are not 0", PRELUDE, '"return x != x ? 0 : x >= {above}', '"return x != x ? {high} : x >= {above}'),
    Mutant("remainders are C's", PRELUDE, "return r != 0 && (r ^ b) < 0 ? r + b : r;", "return r;"),
    Mutant("groups along z are dropped", PRINTER, "for name, count in zip(reversed(self._groups), reversed(groups), strict=True)", "for name, count in zip(reversed(self._groups), (1, *reversed(groups[:2])), strict=True)"),
    Mutant("groups along y are dropped", PRINTER, "reversed(groups), strict=True)", "(groups[2], 1, groups[0]), strict=True)"),
    Mutant("dependencies are ignored", HOST, "self._queue.run(partial(self._launch, buffers), dependencies, profile=profile)", "self._queue.run(partial(self._launch, buffers), (), profile=profile)"),
    Mutant("buffers are not checked", HOST, "    if buffer.nbytes < needed:", "    if False:"),
    Mutant("uint64 becomes float by way of int64", PRINTER, "        found = c99_prelude.cast(source, target)\n", "        if source is DType.UINT64 and target.is_float and target not in HALVES:\n            return self.expand(Cast(Cast(value, Type(DType.INT64)), Type(target)))\n        found = c99_prelude.cast(source, target)\n"),
    Mutant("-ffast-math", DEVICE, '"-ffp-contract=off",', '"-ffast-math",'),
    Mutant("subnormal numbers are flushed to zero", PRINTER, 'return "\\n".join([text, f"void {entry}(void *const *buffers) {{", *loops, call_, "}\\n"])', 'return "\\n".join([text, f"void {entry}(void *const *buffers) {{ unsigned old_ = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(old_ | 0x8040);", *loops, call_, "    __builtin_ia32_ldmxcsr(old_);", "}\\n"])'),
    Mutant("every launch writes the byte behind its first buffer", OBJECT, "            function((ctypes", "            ctypes.memset(buffers[0].address + buffers[0].nbytes, 0x33, 1) if buffers else None\n            function((ctypes"),
    Mutant("every launch writes the byte in front of its first buffer", OBJECT, "            function((ctypes", "            ctypes.memset(buffers[0].address - 1, 0x33, 1) if buffers else None\n            function((ctypes"),
    Mutant("float64 becomes float16 without float32 between", PRINTER, "        if found is None and (source in HALVES", '        if source is DType.FLOAT64 and target is DType.FLOAT16:\n            return self._prelude(Operation("tile_direct", "static inline uint16_t tile_direct(double x) { _Float16 y = (_Float16)x; uint16_t b; memcpy(&b, &y, 2); return b; }\\n"), value)\n        if found is None and (source in HALVES'),
    Mutant("64-bit arithmetic wraps at 32 bits", PRELUDE, 'unsigned = "uint64_t" if dtype.bits == 64 else "uint32_t"', 'unsigned = "uint32_t"'),
    Mutant("libraries are never closed", OBJECT, "        _ctypes.dlclose(handle)", "        pass"),
    Mutant("work with pending dependencies blocks the caller", QUEUE, "        if pending or not inline:\n", "        for event in pending:\n            event.wait()\n        pending = []\n        if pending or not inline:\n"),
    # scalar operations
    Mutant("x / 0 traps", PRELUDE, '"return b == 0 ? 0 : b == -1 ? ({T})(0 - ({U})a) : ({T})(a / b);"', '"return b == -1 ? ({T})(0 - ({U})a) : ({T})(a / b);"'),
    Mutant("unsigned x / 0 traps", PRELUDE, '("div", Kind.UNSIGNED): (_BOTH, "return b == 0 ? 0 : ({T})(a / b);")', '("div", Kind.UNSIGNED): (_BOTH, "return ({T})(a / b);")'),
    Mutant("MIN / -1 traps", PRELUDE, "b == -1 ? ({T})(0 - ({U})a) : ({T})(a / b)", "({T})(a / b)"),
    Mutant("max and min of integers are exchanged", PRELUDE, '_EXTREME = {"max": ">", "min": "<"}', '_EXTREME = {"max": "<", "min": ">"}'),
    Mutant("a negative number shifted out is 0", PRELUDE, "a < 0 ? -1 : 0;", "0;"),
    Mutant("a true shifted to the left is false", PRELUDE, '"return a && n >= 0 && n < {W};"', '"return a && n == 0;"'),
    Mutant("a true shifted to the right stays", PRELUDE, '"return a && n == 0;"', '"return a;"'),
    Mutant("float16 has no subnormals", PRELUDE, "    y *= 0x1p+112f;", "    y *= bits < 0x800000 ? 0.0f : 0x1p+112f;"),
    Mutant("float16 loses its infinities", PRELUDE, "if (rest >= 0x7c00) bits = 0x7f800000", "if (rest > 0x7c00) bits = 0x7f800000"),
    Mutant("float16 loses the sign of what it reads", PRELUDE, "    bits |= (uint32_t)(x & 0x8000) << 16;\n", ""),
    Mutant("float16 rounds halves up", PRELUDE, "    bits += 0xfff + (bits >> 13 & 1);", "    bits += 0x1000;"),
    Mutant("float16 overflows early", PRELUDE, "if (bits >= 0x477ff000) return", "if (bits >= 0x477fe000) return"),
    Mutant("bfloat16 rounds halves up", PRELUDE, "((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\"\"\"", "((bits + 0x8000) >> 16);\"\"\""),
    Mutant("NaN becomes infinite in bfloat16", PRELUDE, "    if (x != x) return (uint16_t)(bits >> 16 | 0x40);\n", ""),
    Mutant("abs of float64 by float32", PRELUDE, '"return fabs{f}(a);"', '"return fabsf(a);"'),
    # printing and launching
    Mutant("buffers in another order", PRINTER, 'f"buffers[{n}]" for n in range(len(function.params))', 'f"buffers[{len(function.params) - 1 - n}]" for n in range(len(function.params))'),
    Mutant("half constants are truncated", PRINTER, "(bits + 0x7FFF + (bits >> 16 & 1)) >> 16", "bits >> 16"),
    Mutant("comparisons of halves compare their bits", PRINTER, "            case Compare(op, left, right, t) if left.type.dtype in HALVES:\n", "            case Compare(op, left, right, t) if False:\n"),
    Mutant("private arrays are shared by concurrent launches", "packages/tile-ir/src/tile_ir/emit/clike.py", 'self.line(f"{prefix}{self.type_name(node.type)} {self.declare(node.name)}[{node.type.count}];")', 'self.line(f"static {prefix}{self.type_name(node.type)} {self.declare(node.name)}[{node.type.count}];")'),
    Mutant("read-only buffers are written", HOST, "    if parameter.written and buffer.readonly:", "    if False:"),
    Mutant("too few buffers are accepted", HOST, "    if len(given) != len(wanted):", "    if len(given) > len(wanted):"),
    Mutant("copies stop one byte short", HOST, "ctypes.memmove(target.address, source.address, target.nbytes)", "ctypes.memmove(target.address, source.address, max(0, target.nbytes - 1))"),
    Mutant("fills stop one byte short", HOST, "ctypes.memset(target.address, 0, target.nbytes)", "ctypes.memset(target.address, 0, max(0, target.nbytes - 1))"),
    Mutant("damaged libraries are loaded", OBJECT, "        if hashlib.sha256(code).digest() != digest:", "        if not code:"),
    Mutant("a failed dependency is no failure", QUEUE, "            for event in dependencies:\n                event.wait()\n            if profile:", "            if profile:"),
)  # fmt: skip
"""One line each; the first 21 are those of an engineer who wrote a backend from the documentation alone."""
