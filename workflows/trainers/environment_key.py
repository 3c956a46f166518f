"""Reads `trainer.environment`: the file, and for which workers a list of packages is built."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnlib.spec.checks import Check, matching
from nnlib.util.os_errors import reason_of
from regiondag.study.program import LISTS, PACKED, Environment
from regiondag.trainers.container import CONTAINER, NONE, is_wanted
from regiondag.util.schema import TEXT, Key, Keys, Section, object_of

ENVIRONMENT = "environment"
ZSTANDARD = (".tar.zst", ".tzst")
READS_ZSTANDARD = (3, 14)  # whose standard library can
FORMS = (
    f"a list of packages that ends with {' or '.join(LISTS)} such as requirements.txt, or an environment packed as "
    f"{', '.join(PACKED)}"
)
PARTS: Keys = {
    "file": Key("", TEXT, f"From study.yaml's folder: {FORMS}."),
    "python": Key(
        "",
        matching(r"3\.[0-9]{1,2}", "a version in quotes such as '3.13'"),
        "Of a list: the version of the workers' Python, by default that of the Python that runs regiondag. Of another "
        "one only wheels are taken, nothing is built.",
    ),
    "platform": Key(
        "",
        matching("[A-Za-z0-9_.]{1,64}", "a platform as pip names it, such as manylinux_2_28_aarch64"),
        "Of a list: what pip calls the workers' platform, by default that of this machine.",
    ),
}


def _parts(value: Any) -> Mapping[str, str]:
    if value == NONE:
        return {}
    said = {"file": value} if isinstance(value, str) else value
    if not isinstance(said, Mapping) or "file" not in said or not set(said) <= set(PARTS):
        raise ValueError
    for name, one in said.items():
        try:
            PARTS[name].check.of(one)
        except ValueError:
            raise ValueError(f"{name}: {one!r}, legal: {PARTS[name].check.legal}") from None
    return dict(said)


KEY: Key[Mapping[str, str]] = Key(
    {},
    Check(
        _parts,
        f"requirements.txt, or an archive such as env.tar.gz, or {{file: requirements.txt, python: '3.13'}}, or {NONE}",
        {"anyOf": [TEXT.schema, object_of(PARTS, ["file"])]},
    ),
    "The Python packages that the program needs, which go with the job: a list that `generate` builds once, or an "
    f"environment that is packed already, as by conda-pack or venv-pack; {NONE}: the worker's Python alone.",
)


def read_environment(section: Section, folder: Path) -> Environment | None:
    """Read what a program's `section` says of its environment; None where it says nothing, or nothing legal."""
    said = section.value(ENVIRONMENT, {ENVIRONMENT: KEY})
    if not said:
        return None
    if is_wanted(section, CONTAINER):
        text = (
            "beside trainer.container it is not legal: the image has what the program needs; remove one of both, or, "
            f"where a region's own differs from the study's, say {NONE} there"
        )
        section.problems.add(section.where(ENVIRONMENT), text)
        return None
    found = Environment(folder / said["file"], said.get("python", ""), said.get("platform", ""))
    problem = _find_problem(found)
    if problem:
        section.problems.add(section.where(ENVIRONMENT), f"{said['file']}: {problem}")
    return None if problem else found


def _find_problem(found: Environment) -> str:
    try:
        found.file.stat()
    except OSError as error:
        return reason_of(error)
    name = found.file.name.lower()
    if name.endswith(ZSTANDARD) and sys.version_info >= READS_ZSTANDARD:
        return ""
    if name.endswith(ZSTANDARD):
        return f"no worker with a Python before {'.'.join(map(str, READS_ZSTANDARD))} can read that; pack it as .tar.gz"
    if not found.file.is_file() or not name.endswith((*LISTS, *PACKED)):
        return f"legal: {FORMS}"
    if not found.is_list and (found.python or found.platform):
        return "python and platform are of a list of packages; an environment that is packed has its own"
    return ""
