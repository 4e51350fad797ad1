"""Padding: a program of larger shapes that gives what the same program of smaller ones gives.

`compared(small, large)` lays two programs that one source made for two sizes side by side, operation by operation, and
shows that inside the box of its smaller shape every value of `large` is the value of `small`, whatever lies outside of it
in the inputs. Where that needs help it says which: cells outside that have to be neutral where a sum or an extreme meets
them, numbers and constants that depend on the size and have to be inputs. `generalised` makes the program that has it.
"""

from tile_onnx.padding.compare import compared as compared
from tile_onnx.padding.generalise import General as General
from tile_onnx.padding.generalise import generalised as generalised
from tile_onnx.padding.generalise import numbers as numbers
from tile_onnx.padding.generalise import values as values
from tile_onnx.padding.needs import Mask as Mask
from tile_onnx.padding.needs import Needs as Needs
from tile_onnx.padding.needs import OtherForm as OtherForm
from tile_onnx.padding.needs import Refused as Refused
