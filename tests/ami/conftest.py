"""The worker's own programs, imported by the path they have in the overlay, and an EC2 that is none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from regiondag.bake.boot.imds_server import MetadataServer

FILES = Path(__file__).resolve().parents[2] / "ami/provision/files"
PROVISION = FILES.parent
PROGRAMS = FILES / "usr/local/libexec/regiondag"


def load(name: str) -> ModuleType:
    """Return one of the worker's modules; they import each other as they do where they run."""
    if str(PROGRAMS) not in sys.path:
        sys.path.append(str(PROGRAMS))
    return importlib.import_module(name)


@pytest.fixture
def imds(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataServer]:
    """Return a metadata service that the worker's programs ask."""
    with MetadataServer() as server:
        monkeypatch.setenv("REGIONDAG_METADATA", server.endpoint)
        yield server
