"""The families of models: what each is, and its hyperparameters."""

from __future__ import annotations

import importlib

from docs._generate.markdown import code, docstring, escape, table
from nnlib.families import family_of
from nnlib.families.legal import LEGAL, Range


def render_families() -> str:
    """Return a section for each family: what its module says, and a table of its hyperparameters."""
    parts = []
    for name, legal in LEGAL.items():
        defaults = family_of(name).DEFAULTS
        rows = [
            (code(key), code(defaults[key]), escape(str(may) if isinstance(may, Range) else ", ".join(may)))
            for key, may in legal.items()
        ]
        about = escape(docstring(importlib.import_module(f"nnlib.families.{name}")))
        parts += [f"## {code(name)}", about, table(("hyperparameter", "default", "legal"), rows)]
    about = escape(docstring(importlib.import_module("nnlib.families.blend")))
    return "\n\n".join([*parts, f"## {code('blend')}", about])


def render_recipe_models() -> str:
    """Return what the files of fitted recipes hold."""
    return escape(docstring(importlib.import_module("nnlib.families.model_file")))
