"""Copies of boxes of tensors as statements of a kernel: descriptors in front of everything, and batches that it counts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import MOST_COUNTS, AsyncWait, Expr, Function, TensorCopy

from hal_opencl.emit import tensors
from hal_opencl.emit.copies import ending
from hal_opencl.emit.matrix import MatrixExpressions
from hal_opencl.emit.tensors import Tensor, Tensors, tensors_of


class BoxStatements(MatrixExpressions):
    """Tensor copies where the dialect has teams: those processors have both."""

    _arrivals: str
    """Memory of the queue, the kernel's last parameter."""
    _tensors: Tensors | None = None
    _barriers: str
    _closed: str
    _maps: Sequence[str]

    def describe_tensors(self, function: Function) -> None:
        """Descriptors and barriers, before anything is copied; and the number of batches that are closed."""
        self._tensors = found = tensors_of(function)
        if found is None:
            return
        self._barriers, self._closed, words = (self.names.fresh(n) for n in ("barriers", "closed", "words"))
        self._maps = [self.names.fresh("map") for _ in found.tensors]
        self.line(f"local ulong {self._barriers}[{found.ring}] __attribute__((aligned(16)));")
        self.line(f"local uint {words}[{tensors.WORDS * len(found.tensors)}] __attribute__((aligned(128)));")
        self.line(f"uint {self._closed} = 0;")
        for number, tensor in enumerate(found.tensors):
            first = number % max(1, prod(function.group_size) // tensors.WORDS) * tensors.WORDS
            self._describe(tensor, number, f"{words} + {tensors.WORDS * number}", first)
        ready = self.helper(f"ready_barriers_{found.ring}", tensors.ready, found.ring)
        self.line(f"{ready}({self._barriers});")
        self.line("barrier(CLK_LOCAL_MEM_FENCE);")
        known = self.helper("known_tensor", tensors.known)
        for place in self._maps:
            self.line(f"{known}({place});")

    def _describe(self, tensor: Tensor, number: int, words: str, first: int) -> None:
        """A sub-group's work; the next one's is the next tensor."""
        place = tensors.place(self._arrivals, MOST_COUNTS, number, len(self._maps))
        self.line(f"global uint* const {self._maps[number]} = {place};")
        said = "x".join(map(str, (*tensor.sizes, *tensor.strides, *tensor.box, *tensor.steps)))
        describe = self.helper(f"describe_{said}", tensors.describe, tensor)
        self.line(f"{describe}({words}, {self._maps[number]}, {self.lookup(tensor.source)}, {first});")

    def copy_box(self, node: TensorCopy) -> None:
        """Start a copy in the open batch."""
        found = self._tensors
        if found is None or not self._dialect.teams:
            raise SemtreeError("boxes of tensors are copied by kernels, of a device that can")
        name = self.helper(f"copy_box_{'x'.join(map(str, node.box))}", tensors.start, node.box)
        barrier = f"{self._barriers} + {self._closed} % {found.ring}"
        at = (self.expression(x) for x in node.at)
        place = self.place(node.dst, node.dst_index)
        self.line(f"{name}({', '.join([place, self._maps[found.number(node)], barrier, *at])});")

    def wait_for_boxes(self, node: AsyncWait) -> None:
        """Close the batch, if it is of such copies; the items meet behind this."""
        found = self._tensors
        if found is None or node.group != found.group:
            return
        close = self.helper("close_boxes", tensors.close)
        self.line(f"{close}({self._barriers} + {self._closed} % {found.ring});")
        behind = tuple(found.waits(node.pending))
        wait = self.helper(f"wait_boxes_{'_'.join(map(str, (found.ring, *behind)))}", tensors.wait, found.ring, behind)
        self.line(f"{wait}({self._barriers}, {self._closed});")
        self.line(f"{self._closed} += 1;")

    def place(self, ptr: Expr, index: Expr) -> str:
        """The address of an element, with its constant behind what several of them have in common."""
        rest, behind = ending(index)
        return self.pieces(self._address(ptr, rest)) + (f" + {behind}" if behind else "")
