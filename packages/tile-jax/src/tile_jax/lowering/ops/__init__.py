"""Converters, one file for each family of operations; they register themselves when they are imported."""
