"""The HTCondor on this machine: embedded in a root folder, or installed."""
