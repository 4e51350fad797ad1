"""Programs with loops: divided into parts without, each of which is compiled as any program is, and linked again.

No pass, rewrite or plan sees a loop. What a loop's body makes of captured values alone is computed once, before the first
round; the values that it carries stay where a round leaves them, and the next round finds them there.
"""

from tile_opt.loops.compile import compile_parts as compile_parts
from tile_opt.loops.divide import has_loops as has_loops
from tile_opt.loops.prepare import prepared as prepared
