"""Releasing a package: RELEASING.md says how."""
