"""What AOTAutograd made of a captured graph, kept on disk, so that the next process need not trace it again."""
