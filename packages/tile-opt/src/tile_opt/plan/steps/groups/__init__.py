"""Steps that give iterations to the items of groups (threads of a block), and what these share through local memory."""
