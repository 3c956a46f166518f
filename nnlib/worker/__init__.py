"""The job: trial.json in, result.json and exit code out."""
