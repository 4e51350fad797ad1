"""What every emitter needs: safe names, tree walks, and the text of C-like languages."""
