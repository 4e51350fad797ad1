"""The documentation site: pages written from the tables of the packages, beside those of docs/, built by mkdocs.

``python -m pages`` (in a session: ``python3 dev.py docs``) writes build/site; see `pages.__main__`.
"""
