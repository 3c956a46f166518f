"""Tell people how runs end: one digest a run, by a command, a webhook or mail."""
