"""The Debian suites whose HTCondor a pool can have."""

from __future__ import annotations

# Debian releases whose HTCondor the project builds root folders and images with, and its series.
SUITES = {"trixie": "23.9", "forky": "25.14"}
