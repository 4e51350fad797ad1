"""Small rewrites of a kernel's tree, each of the same meaning: what plans are built from."""
