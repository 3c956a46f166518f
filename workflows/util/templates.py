"""Strict Jinja2: what is undefined is an error. The only module that imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2

from regiondag.util.resources import resource_dir

Environment = jinja2.Environment
Filter = Callable[..., Any]


class NothingError(jinja2.TemplateRuntimeError):
    """A template was about to print None."""


def make_environment(filters: dict[str, Filter], finalize: Filter) -> Environment:
    """Return what renders the files in templates/, which are no HTML: every value is quoted by a filter."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_dir("templates")),
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        autoescape=False,  # noqa: S701 (see above)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(filters)
    return environment


def render_html(text: str, **values: Any) -> str:
    """Return an HTML template with its values, each escaped unless it is marked as safe."""
    return jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True).from_string(text).render(**values)
