"""A network as its JSON says it, checked. The manager reads it too: the standard library alone."""
