"""What a file, a model or a training holds, for a person."""
