"""Gradients of Tile programs, Program to Program."""
