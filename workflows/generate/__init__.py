"""A study becomes a run directory: DAG, submit files, archives."""
