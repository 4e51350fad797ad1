"""Classes of cases, drawn by a seed: what is measured, apart from how."""

from __future__ import annotations

from classes import convolution, elementwise, matmul, networks, reductions, semirings, small, stencils
from classes.table import Class
from classes.work import PROGRAMS, Case, Program, Work, instance, named

__all__ = ["PROGRAMS", "Case", "Class", "Program", "Work", "instance", "named"]

FAMILIES = (convolution, elementwise, matmul, networks, reductions, semirings, small, stencils)
"""Imported for the programs that they register."""
