"""Mutants of the compiler's own parts: gradients, translation, passes, plans and their steps, lowering, emitters."""

from __future__ import annotations

from mutants.mutant import Mutant

AUTODIFF = "packages/tile-autodiff/src/tile_autodiff/"
OPT = "packages/tile-opt/src/tile_opt/"
LLVM = "packages/hal-llvm/src/hal_llvm/emit/"

MUTANTS = (
    # gradients
    Mutant("ties of max give the whole gradient to each", AUTODIFF + "rules.py", 's.op("mul", s.dy, s.number(0.5))', "s.dy"),
    Mutant("the derivative of a subtraction's second operand has the wrong sign", AUTODIFF + "rules.py", '"sub": Rule((_pass, _negated))', '"sub": Rule((_pass, _pass))'),
    Mutant("the derivative of a division by its divisor loses its sign", AUTODIFF + "rules.py", 's.op("neg", s.op("mul", _numerator(s), s.y))', 's.op("mul", _numerator(s), s.y)'),
    Mutant("factors of a product get their own derivative", AUTODIFF + "rules.py", '"mul": Rule((_times(1), _times(0)))', '"mul": Rule((_times(0), _times(1)))'),
    Mutant("the derivative of abs at negative numbers", AUTODIFF + "rules.py", 's.op("neg", s.dy), zero)', "s.dy, zero)"),
    Mutant("the derivative of cos loses its sign", AUTODIFF + "rules.py", 's.op("neg", s.op("sin", s.args[0]))', 's.op("sin", s.args[0])'),
    Mutant("the derivative of tanh", AUTODIFF + "rules.py", '"tanh": Rule((_one_argument(lambda s: s.op("sub", s.number(1)', '"tanh": Rule((_one_argument(lambda s: s.op("add", s.number(1)'),
    Mutant("the derivative of sqrt is twice too large", AUTODIFF + "rules.py", 's.op("mul", s.number(2), s.y)', "s.y"),
    Mutant("the derivative of a power with a constant exponent", AUTODIFF + "rules.py", "s.number(exponent - 1)", "s.number(exponent)"),
    Mutant("the derivative passes a condition that does not hold", AUTODIFF + "rules.py", 's.op("cond", s.args[0], s.number(0), s.dy)', "s.dy"),
    Mutant("reverse_grad keeps the sign", AUTODIFF + "rules.py", "s.number(-s.params[0])", "s.number(s.params[0])"),
    Mutant("maxima that several elements reach are not shared", AUTODIFF + "_seeds.py", 'graph.emit("max", (count, one), dtype)', "one"),
    Mutant("a product with two zeros has a gradient", AUTODIFF + "_seeds.py", "where(1, graph.emit(\"mul\", (scaled, small), dtype), zero)", "scaled"),
    Mutant("the default gets the gradient of every cell", AUTODIFF + "_contractions.py", '(empty, dout, literal(0, dtype))', '(empty, dout, dout)'),
    Mutant("equal loads count once", AUTODIFF + "_contractions.py", "parts.setdefault(arg, []).append(share)", "parts[arg] = [share]"),
    # dot products
    Mutant("borders of a convolution hold zeros whatever its numbers are counted from", OPT + "program/dots/words.py", "outside = stored.filling if any(map(any, pads)) else 0", "outside = 0"),
    Mutant("bytes keep their sign where the other one is wanted", OPT + "program/dots/words.py", "turned = _TURNED if raw and stored.flipped else 0", "turned = 0"),
    Mutant("numbers that fill a last word keep their sign", OPT + "program/dots/words.py", "    if stored.flipped:\n        bit", "    if False:\n        bit"),
    Mutant("the sum of a factor counts what fills its last word", OPT + "program/dots/build.py", "if w + q < count", "if True"),
    Mutant("sums of a factor alone count each number once", OPT + "program/dots/build.py", "for n in self.match.reduced if n not in names)", "for n in () if n not in names)"),
    Mutant("cells without terms get what is added outside the sum", OPT + "program/dots/choose.py", "        if not _is_full(match):\n            return None\n", ""),
    Mutant("words go on behind the end of what is summed", OPT + "program/dots/choose.py", "ends = match.ranges[index] % dot.depth", "ends = 0"),
    Mutant("scales may be infinite", OPT + "program/dots/match.py", "bool(((size <= LARGEST_SCALE) & ((size >= 1 / LARGEST_SCALE) | (size == 0))).all())", "True"),
    Mutant("signed factors are taken for unsigned", OPT + "semtree/legalise.py", "    if dtype.is_signed:\n", "    if False:\n"),
    Mutant("the last words of many are never computed", LLVM + "dots.py", "pieces = range(0, lanes, form.lanes)", "pieces = range(0, 1, form.lanes)"),
    # translation and analysis
    Mutant("gather does not clamp", OPT + "translate/gather.py", "clamp=True)", "clamp=False)"),
    Mutant("rows that scatter adds run at once", OPT + "translate/scatter.py", "(n, r) if n in free else (n, r, Order.ORDERED)", "(n, r)"),
    Mutant("scatter replaces what is there", OPT + "translate/scatter.py", "None if op.agg is Aggregation.ASSIGN else op.agg", "None"),
    Mutant("one flag for cells that a scatter does not write together", OPT + "translate/scatter.py", "and cells[bare[s]] == n else n", "else n"),
    Mutant("all values that were assigned to one cell get its gradient", AUTODIFF + "_scatters.py", '(stayed, values.here(dout), zero)', '(stayed, values.here(dout), values.here(dout))'),
    Mutant("cells that no tuple writes are taken for written", OPT + "analysis/coverage.py", "ranges[form.names[0]] != size:", "ranges[form.names[0]] > size:"),
    Mutant("an empty domain leaves its cells as they are", OPT + "analysis/coverage.py", "        return (whole,)\n", "        return ()\n"),
    # simplification
    Mutant("x - 0 becomes 0", OPT + "semtree/rules.py", '("sub", "x", 0), "x", NUMBERS', '("sub", "x", 0), 0, NUMBERS'),
    Mutant("(x - a) + b adds a", OPT + "semtree/rules.py", '("add", "x", ("sub", "#b", "#a"))', '("add", "x", ("sub", "#a", "#b"))'),
    Mutant("x < x is true", OPT + "semtree/rules.py", '("cmp_lt", "x", "x"), False', '("cmp_lt", "x", "x"), True'),
    Mutant("x | 0 becomes 0", OPT + "semtree/rules.py", '("bit_or", "x", 0), "x"', '("bit_or", "x", 0), 0'),
    Mutant("a choice by false takes the first", OPT + "semtree/rules.py", '("cond", False, "x", "y"), "y"', '("cond", False, "x", "y"), "x"'),
    Mutant("a shift by nothing gives nothing", OPT + "semtree/rules.py", '("bit_left", "x", 0), "x"', '("bit_left", "x", 0), 0'),
    # passes
    Mutant("kernels whose readers subscript by data are inlined", OPT + "passes/kernels/inline.py", "all(not s.at for s in stage.body if isinstance(s, Load) and s.src == name)", "True"),
    Mutant("what a reader writes, too, is inlined", OPT + "passes/kernels/inline.py", "if any(u.writes or not _plain_loads", "if any(not _plain_loads"),
    Mutant("loads of other cells are taken for the producer's", OPT + "kernel/inlining.py", "known = {(u.buffer, u.forms): u.name for u in early.uses if not u.extent}\n        twice = {u.name: known.get((u.buffer, u.forms))", "known = {u.buffer: u.name for u in early.uses if not u.extent}\n        twice = {u.name: known.get(u.buffer)"),
    Mutant("what others read, too, is left out where a copy computes it", OPT + "passes/through.py", "named[buffer] == frozenset({k})", "named[buffer] >= frozenset({k})"),
    Mutant("accumulators of edges store outside the buffer", OPT + "kernel/accumulators.py", "tuple(c for c in outside if c not in view.constraints)", "()"),
    Mutant("accumulators and partial results start at zero whatever the aggregation", OPT + "kernel/view.py", 'Const("$z", agg.identity(dtype), dtype)', 'Const("$z", 0, dtype)'),
    Mutant("an accumulator replaces what the cell holds", OPT + "kernel/accumulators.py", "_store_stage(view, use, name, use.agg)", "_store_stage(view, use, name, None)"),
    Mutant("rows in steps keep sums below an old largest element", OPT + "plan/builders/rows_in_steps.py", "yield from self._scaled()\n\n    def _gathered", "yield from ()\n\n    def _gathered"),
    Mutant("rows are weighed below any maximum", OPT + "kernel/rows_in_steps.py", "return pivot if alike and pivot and", "return pivot if pivot and"),
    Mutant("merged loops lose an upper bound's rest", OPT + "kernel/merging.py", "(b.range - 1 if sign < 0 else 0)", "0"),
    Mutant("loops with a gap between their rows are merged", OPT + "kernel/merging.py", "whole.strides[first] == whole.strides[second] * b.range", "True"),
    Mutant("loops under constraints on their multiples are merged", OPT + "kernel/merging.py", "abs(c.coefficient(a)) <= 1", "abs(c.coefficient(a)) <= 2"),
    Mutant("merged subscripts forget the blocks of other loops", OPT + "kernel/merging.py", "second: blocks + Affine.var(b.name)", "second: Affine.var(b.name)"),
    Mutant("prefix sums skip what all cells hold", OPT + "passes/kernels/scan.py", "count = min(prefix.scan.ahead, prefix.scan.elements)", "count = 0"),
    Mutant("cells behind the last step of a prefix sum stay empty", OPT + "passes/kernels/scan.py", "if prefix.scan.cells == prefix.steps:", "if True:"),
    Mutant("prefix sums run the other way round", OPT + "kernel/scan.py", "turn = 1 if a > 0 else -1", "turn = 1"),
    Mutant("a cell in front of a prefix sum is left as it was", OPT + "kernel/prefix.py", "_part(fill, dim, 0, min(ends))", "_part(fill, dim, 1, min(ends))"),
    Mutant("stages' loops of one name and different ranges stay so", OPT + "kernel/view.py", "ranges.setdefault(i.name, i.range) != i.range]", "False]"),
    # plans and their steps
    Mutant("remainders of vectors are left out", OPT + "kernel/segments.py", "return (*parts, *powers_of_two(start, extent))", "return parts"),
    Mutant("the last tile that reaches back starts one late", OPT + "kernel/segments.py", "1, size, size - left)", "1, size, size - left - 1)"),
    Mutant("whole tiles where a constraint holds only for some iterations", OPT + "kernel/segments.py", "-(r // c) if c > 0 else r // -c + 1", "-(r // c) if c > 0 else r // -c + 2"),
    Mutant("remainders do not check what runs past them", OPT + "plan/steps/edges.py", "if segment.past:", "if False:"),
    Mutant("constraints count as met too early", OPT + "plan/steps/edges.py", "if low < 0 and weakest(", "if low < -1 and weakest("),
    Mutant("tiles of a segment start one tile late", OPT + "plan/steps/edges.py", "(position + -before) * segment.size", "(position + -before + 1) * segment.size"),
    Mutant("one of several copies of partial results is lost", OPT + "plan/steps/reduce.py", "w.size // w.lanes - 1", "max(1, w.size // w.lanes - 2)"),
    Mutant("items forget what the cell held", OPT + "plan/steps/groups/combine.py", '(old, self._name("all", number))', '(self._name("all", number), self._name("all", number))'),
    Mutant("items that wait for nobody", OPT + "plan/steps/groups/parts.py", "            made.append(barrier)\n", ""),
    Mutant("all items do what one has to do", OPT + "plan/steps/groups/spread.py", "if not (seen and idle):", "if True:"),
    Mutant("what is left of shared loops is left out", OPT + "plan/steps/groups/spread.py", "            parts += self._tails()\n", "            pass\n"),
    Mutant("items take what others write", OPT + "plan/steps/groups/homes.py", "return alike and loops <= moved", "return True"),
    # lowering
    Mutant("loops stop one short", OPT + "lowering/loops.py", "affine = affine + 1", "affine = affine + 0"),
    Mutant("a loop's start is not rounded up", OPT + "lowering/loops.py", "(other * -1) + (size - 1) if coefficient > 0", "(other * -1) if coefficient > 0"),
    Mutant("of several lower bounds the smallest counts", OPT + "lowering/loops.py", '_combine(builder, "max", start', '_combine(builder, "min", start'),
    Mutant("threads read the exchange before others have written", OPT + "lowering/group_reduce.py", '        builder.emit(If(lower, Block(tuple(joined))))\n        builder.emit(Barrier("group", "local"))', "        builder.emit(If(lower, Block(tuple(joined))))"),
    Mutant("half of a digit's values are merged", OPT + "lowering/group_reduce.py", "                left //= parts\n", "                left //= 2 * parts\n"),
    Mutant("merging over any sizes stops one short", OPT + "lowering/group_reduce.py", "builder.literal(1), builder.literal(count), 1", "builder.literal(1), builder.literal(count - 1), 1"),
    # the processor's emitter
    Mutant("the product of true and false is true", LLVM + "arith.py", '"mul": "and"', '"mul": "or"'),
    Mutant("the sum of two trues is false", LLVM + "arith.py", '"add": "or", "sub": "xor"', '"add": "xor", "sub": "xor"'),
    Mutant("max loses NaN", LLVM + "arith.py", 'nan = code.let(f"fcmp uno {t} {b}, {b}")', 'nan = code.let(f"fcmp ord {t} {b}, {b}")'),
    Mutant("min takes the greater", LLVM + "arith.py", '("llvm.minimum", "olt")', '("llvm.minimum", "ogt")'),
    Mutant("unsigned extremes are compared as signed", LLVM + "arith.py", "'s' if dtype.is_signed else 'u'}{which}", "'s'}{which}"),
    Mutant("x / 0 is x", LLVM + "arith.py", "select(code, zero, literal(0, dtype, lanes), quotient, register(dtype, lanes), lanes)", "quotient"),
    Mutant("MIN / -1 traps", LLVM + "arith.py", 'wraps = code.let(f"and {mask} {lowest}, {minus}")', 'wraps = code.let(f"and {mask} {lowest}, {zero}")'),
    Mutant("remainders have C's sign", LLVM + "arith.py", 'apart = code.let(f"icmp slt {t} {mixed}', 'apart = code.let(f"icmp sgt {t} {mixed}'),
    Mutant("masked stores of vectors store every lane", LLVM + "memory.py", "if mask is not None:\n        _masked_store", "if mask is not None and lanes == 1:\n        _masked_store"),
    Mutant("bools are read the wrong way round", LLVM + "memory.py", 'f"icmp ne {memory(dtype, held(lanes))} {value}', 'f"icmp eq {memory(dtype, held(lanes))} {value}'),
)  # fmt: skip
"""One line each."""
