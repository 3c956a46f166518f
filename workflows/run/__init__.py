"""A run directory, and all that is ever written into it."""
