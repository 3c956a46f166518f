"""Kinds of model besides networks: a file each, with the same few functions; `family` says which."""

from __future__ import annotations

import importlib

from nnlib.families.family import Family

FAMILIES = ("popularity", "knn", "ease", "graph", "elsa", "ials", "days", "again", "logistic", "blend")


def family_of(name: str) -> Family:
    """Return the module of a family; KeyError for a name that is none."""
    if name not in FAMILIES:
        raise KeyError(name)
    return importlib.import_module(f"nnlib.families.{name}")
