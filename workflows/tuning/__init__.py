"""Propose hyperparameters: every method behind one pure function, whose input and output are plain data.

Nothing is remembered between calls: the same history, pending points and seed give the same proposals on any machine,
after a crash as in a rescue DAG.
"""
