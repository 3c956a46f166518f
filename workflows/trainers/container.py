"""Reads `trainer.container`: the image in which a program runs, as a file that goes with the job or where it lies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nnlib.spec.checks import Check
from nnlib.util.os_errors import reason_of
from regiondag.study.program import Container
from regiondag.util.schema import Key, Keys, Section
from regiondag.util.text import holds_control_character

CONTAINER = "container"
NONE = "none"  # what a region says whose program needs not what the study's does
MOST = 1000  # characters of an image's name
_REGISTRY = re.compile(r"(docker|oras)://[A-Za-z0-9][A-Za-z0-9_.:/@+-]*")
_MAGIC, _BEFORE = b"SIF_MAGIC", 32  # of a .sif, behind the line that starts it as a program
LEGAL = (
    "a .sif file, from study.yaml's folder, that goes with the jobs; docker://NAME or oras://NAME; or, with "
    "shared: true, the whole path of a file or a folder that all workers have"
)


def _image(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST or holds_control_character(value):
        raise ValueError
    if "://" in value and not _REGISTRY.fullmatch(value):
        raise ValueError
    return value


def _shared(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


IN_CONTAINER: Keys = {
    "image": Key(
        "",
        Check(_image, LEGAL, {"type": "string", "minLength": 1, "maxLength": MOST}),
        f"{LEGAL[0].upper()}{LEGAL[1:]}.",
    ),
    "shared": Key(
        False,
        Check(_shared, "true or false", {"type": "boolean"}),
        "Whether the image lies at that path on all workers, and is not sent.",
    ),
}


def read_container(section: Section, folder: Path) -> Container | None:
    """Read what `trainer.container` of a section says; None where there is none, or where it is wrong."""
    if not is_wanted(section, CONTAINER):
        return None
    # A region's own image where the study says that there is none.
    layers = [layer for layer in section.layers if layer.value.get(CONTAINER) != NONE]
    below = Section(section.problems, layers).section(CONTAINER)
    image, shared = (below.value(name, IN_CONTAINER) for name in IN_CONTAINER)
    below.finish()
    if not image:
        below.problems.add(below.where("image"), f"missing, legal: {LEGAL}")
        return None
    text = ""
    if shared:
        text = "" if image.startswith("/") else f"seen {image!r} with shared: true, legal: a path that begins with /"
    elif "://" not in image:
        text = _why_not_sent(folder / image, image)
    if text:
        below.problems.add(below.where("image"), text)
        return None
    return Container(image, None if shared or "://" in image else folder / image)


def is_wanted(section: Section, key: str) -> bool:
    """Whether a section says what a key is, and not that there is none."""
    return section.raw(key) != NONE and key in section


def _why_not_sent(file: Path, image: str) -> str:
    """Return why a file is no image that could go with a job."""
    try:
        if file.is_dir():
            return (
                f"{image} is a folder; make a file of it (apptainer build image.sif {image}), or, where all workers "
                "have it, give its whole path and shared: true"
            )
        with file.open("rb") as read:
            start = read.read(_BEFORE + len(_MAGIC))
    except OSError as error:
        where = "; a path that only workers have needs shared: true" if image.startswith("/") else ""
        return f"{file}: {reason_of(error)}, legal: {LEGAL}{where}"
    if start[_BEFORE:] != _MAGIC:
        return f"{image} is no SIF image, legal: {LEGAL}; apptainer build or pull makes one"
    return ""
