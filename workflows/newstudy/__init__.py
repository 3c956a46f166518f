"""A table of purchases becomes a study: what was seen in it, and the few lines that name it."""
