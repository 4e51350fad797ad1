"""Random graphs of array operations through every front end: ``python -m fuzz --seconds 600``.

A graph is drawn once, as data, from the array API standard's functions, which NumPy has, too: what it must give is known
before any front end sees it. Each front end is a namespace of those functions.
"""
