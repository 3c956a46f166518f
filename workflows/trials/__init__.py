"""Trials as rows: queries, tables, plots, control, export."""
