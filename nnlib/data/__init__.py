"""Data sets, in memory and in files."""
