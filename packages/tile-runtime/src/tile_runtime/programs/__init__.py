"""Compiled programs: in parts, on disk and in memory, bound to buffers and run; what a device lacks runs on another one."""
