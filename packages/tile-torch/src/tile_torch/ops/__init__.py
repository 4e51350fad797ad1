"""Converters of operators, one file for each family; every file here is loaded."""
