"""Every night: which regions have new data, and the job that looks."""
