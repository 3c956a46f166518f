"""study.yaml becomes `study.model`, with every mistake at once."""
