"""What has nothing to do with studies: text, YAML, files, terminal, AWS."""
