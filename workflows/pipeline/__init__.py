"""From study.yaml to the report in one go, taken up wherever it was left."""
