"""Converters of StableHLO's operations, one file for each family."""
