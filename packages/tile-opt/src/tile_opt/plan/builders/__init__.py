"""Whole kernels built from plans for groups of items: contractions and kernels over rows, on items or on matrix instructions."""
