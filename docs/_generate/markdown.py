"""Plain text of the code as Markdown, and links that hold in the repository as well as on the site."""

from __future__ import annotations

import inspect
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

_CODE = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([\\*_<>\[\]|$])")
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def escape(text: str) -> str:
    """Return plain text as Markdown that shows it; what stands between backticks stays code.

    >>> escape("a_b of `a_b` | c")
    'a\\\\_b of `a_b` \\\\| c'
    """
    parts = _CODE.split(text)
    return "".join(part.replace("|", r"\|") if n % 2 else _SPECIAL.sub(r"\\\1", part) for n, part in enumerate(parts))


def code(text: object) -> str:
    """Return text as code, also inside of a table; nothing for no text."""
    return f"`{text}`".replace("|", r"\|") if text != "" else ""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(" ".join(cell.split()) for cell in line) + " |" for line in lines)


def docstring(thing: object) -> str:
    """Return the docstring of something, without its indentation."""
    return inspect.getdoc(thing) or ""


def relink(text: str, origin: Path, pages: Mapping[Path, str], docs: Path) -> str:
    """Return `text` of the file `origin` with links that hold wherever on the site it is shown.

    A relative link leads from `origin` to a file of the repository. `pages` are files outside of `docs` which the site
    has as pages of its own, by their names there. Links to files that do not exist stay as they are, and are an error
    of the build.
    """

    def replaced(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(origin.parent / match[2]))
        if target in pages:
            place = f"/{pages[target]}.md"
        elif target.is_relative_to(docs):
            place = f"/{PurePosixPath(target.relative_to(docs))}"
        elif target.exists() and target.suffix != ".md":
            place = os.path.relpath(target, docs / "any")  # the site offers it for download
        else:
            return match[0]
        return f"{match[1]}{place}{match[3]}"

    return _LINK.sub(replaced, text)
