"""Finds what `trainer.files` names: files and folders that go with a program's jobs, and those that URLs give."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from nnlib.util.os_errors import reason_of
from nnlib.worker.downloads import Download
from nnlib.worker.program_archive import fill_in
from regiondag.study.program import RESERVED
from regiondag.trainers.urls import UrlForm, resolve
from regiondag.util.schema import Section

MOST_FILES = 10_000
UNSAYABLE = "it holds a line break, a NUL or half of a character"


def can_be_said(word: str) -> bool:
    """Whether a word can be an argument of a command, and a file's name in UTF-8."""
    return not re.search("[\0\n\ud800-\udfff]", word)


def find_files(section: Section, patterns: tuple[str, ...], folder: Path, region: str) -> Iterator[tuple[str, Path]]:
    """Yield the files that patterns name, below `folder` or elsewhere, each with its name in the job."""
    found: dict[str, Path] = {}
    for pattern in patterns:
        try:
            path = folder / fill_in(pattern, {"region": region})
            for name, file in _list_below(path, folder):
                if not can_be_said(name):
                    raise ValueError(f"{name!a}: a name in UTF-8 without line breaks is needed; rename it")
                if not found.setdefault(name, file).samefile(file):
                    raise ValueError(f"{found[name]} and {file} would both be {name!r}; rename one")
        except KeyError as error:
            section.problems.add(section.where("files"), f"{pattern}: {{{error.args[0]}}}: legal: {{region}} alone")
        except (FileNotFoundError, NotADirectoryError) as error:
            text = f"{error.filename}: no such file or folder, for region {region!r}"
            section.problems.add(section.where("files"), text)
        except OSError as error:
            section.problems.add(section.where("files"), f"{error.filename}: {reason_of(error)}")
        except ValueError as error:
            section.problems.add(section.where("files"), str(error))
    for name in found:
        if name.split("/")[0] in RESERVED:
            section.problems.add(section.where("files"), f"{name}: a job has a file of that name; rename it")
    if len(found) > MOST_FILES:
        section.problems.add(section.where("files"), f"{len(found):,} files, legal: {MOST_FILES:,}; pack some together")
    yield from sorted(found.items())


def find_downloads(
    section: Section, forms: Sequence[UrlForm], folder: Path, region: str, names: set[str]
) -> Iterator[Download]:
    """Yield what URLs give; `names` has those in the job that are taken, and gets theirs."""
    files: set[str] = set()
    for form in forms:
        try:
            one = resolve(form, folder, region)
            if one.name in names:
                raise ValueError(f"{one.name}: two files would have that name; give another by name:")
            if one.file in files:
                raise ValueError(f"{one.file}: two URLs end with that name, by which HTCondor would mix them up")
        except KeyError as error:
            section.problems.add(section.where("files"), f"{{{error.args[0]}}}: legal: {{region}} alone")
        except ValueError as error:
            section.problems.add(section.where("files"), str(error))
        else:
            names.add(one.name)
            files.add(one.file)
            yield one


def _list_below(path: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of what is listed, with their names in the job. A link counts as the file that it leads to."""
    path.stat()  # OSError says why it is not there
    inside = Path(os.path.relpath(path, folder))  # by the names that the user gave, wherever links lead
    if ".." in inside.parts:
        inside = Path(Path(os.path.normpath(path)).name)  # what lies elsewhere comes under its own name
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        name = (inside / file.relative_to(path)).as_posix()
        if file.is_symlink() and stat.S_ISDIR(file.stat().st_mode) and file != path:
            raise ValueError(f"{name!a}: a link to a folder is not followed; list that folder itself in files")
        if file.is_file():
            yield name, file
