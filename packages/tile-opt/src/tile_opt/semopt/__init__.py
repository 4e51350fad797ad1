"""Semtree rewriting: simplification and legalisation."""
