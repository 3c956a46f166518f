"""HTCondor's event logs, read into tries of jobs."""
