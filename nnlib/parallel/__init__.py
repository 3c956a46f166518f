"""One training by several processes of this machine, the ranks: how they are started, told, watched and ended."""
