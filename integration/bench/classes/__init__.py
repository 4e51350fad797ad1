"""Classes of cases, drawn by a seed: what is measured, apart from how."""

from __future__ import annotations

from classes import composed, convolution, elementwise, matmul, reductions, small
from classes.table import Class
from classes.work import PROGRAMS, Case, Program, Work, instance, named

__all__ = ["PROGRAMS", "Case", "Class", "Program", "Work", "instance", "named"]

FAMILIES = (composed, convolution, elementwise, matmul, reductions, small)
"""Imported for the programs that they register."""
