"""Reads `trainer`: a program of the user's that trains in nnlib's place, its files, and what it is judged by."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nnlib.contract import Metric, Terms
from nnlib.spec.checks import Check
from nnlib.util.os_errors import reason_of
from nnlib.worker.downloads import Download
from nnlib.worker.program_job import PLACEHOLDER, fill_in, placeholders_of
from regiondag.errors import ConfigError
from regiondag.study.families import FAMILY
from regiondag.study.program import RESERVED, TOLD, Program
from regiondag.study.space import Choice, Space
from regiondag.trainers.container import CONTAINER, IN_CONTAINER, read_container
from regiondag.trainers.environment_key import ENVIRONMENT, KEY, read_environment
from regiondag.trainers.urls import UrlForm, read_form, resolve
from regiondag.util import schema
from regiondag.util.schema import (
    DURATION,
    OR_NEVER,
    REGIONAL,
    TEXT,
    Key,
    Keys,
    Layer,
    Problems,
    Section,
    choice,
    object_of,
    section_of,
)
from regiondag.util.yaml_file import Document

TRAINER = "trainer"
MOST_FILES = 10_000
LONGEST_PATTERN = 200
_NAME = r"[A-Za-z_][A-Za-z0-9_.@/-]{0,63}"
OURS = ("network", "metric", "minimize", "init", "neighbour", "pooled", "data")
INSTEAD = {
    "metric": "trainer.metric says it",
    "minimize": "trainer.metric says it, with mode: min",
    "data": "trainer.files says what a job gets",
}
NOT_OURS = "is for models that nnlib makes"


UNSAYABLE = "it holds a line break, a NUL or half of a character"


def _can_be_said(word: str) -> bool:
    return not re.search("[\0\n\ud800-\udfff]", word)


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and word for word in value):
        raise ValueError
    for word in value:
        if not _can_be_said(word):
            raise ValueError(UNSAYABLE)
        plain = PLACEHOLDER.sub("", word)
        if plain.strip("{}") != plain:
            raise ValueError(f"{word!r}: a brace by itself is written twice: {{{{")
    return tuple(value)


def _retry(value: Any) -> tuple[int | str, ...]:
    if not isinstance(value, list) or not all(type(one) in (int, str) and one not in ("", 0) for one in value):
        raise ValueError
    return tuple(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(_NAME, value) or value == "stderr":
        raise ValueError
    return value


def _files(value: Any) -> tuple[str | UrlForm, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(read_form(one) if isinstance(one, dict) else _words([one])[0] for one in value)


_URL = object_of({name: Key("", TEXT, "") for name in ("url", "sha256", "name")}, ["url", "sha256"])


def _pattern(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_PATTERN or not _can_be_said(value):
        raise ValueError
    if (
        value.startswith(("/", "~"))
        or set(value) & set("?[]\\")
        or {"..", "**", ""} & set(value.rstrip("/").split("/"))
    ):
        raise ValueError
    return value


_PATTERN = "a path in the program's folder, in which * stands for any part of a name"
_LIST = {"type": "array", "items": TEXT.schema}
WHERE: Keys = {
    kind: Key("", Check(_pattern, _PATTERN, TEXT.schema), about)
    for kind, about in (
        ("csv", "Files with a line of names and lines of figures, such as lightning_logs/*/metrics.csv."),
        ("mlflow", "Folders of MLflow's file store, such as mlruns."),
        ("tensorboard", "Folders with event files, also in folders below, such as runs."),
    )
}
METRIC: Keys = {
    "name": Key(
        "", Check(_name, "a name such as auc", {"type": "string", "pattern": f"^{_NAME}$"}), "What the program reports."
    ),
    "mode": Key("max", choice(("max", "min")), "Whether more of it is better, or less."),
    "value": Key("last", choice(("last", "best")), "Which of a trial's values counts."),
    "report": Key(
        None,
        section_of(object_of(WHERE, [])),
        "Files in which the program writes it, one of "
        f"{', '.join(WHERE)}: from the program's folder on, * is any part of a name.",
    ),
}
PROGRAM: Keys = {
    "command": Key(
        (),
        Check(_words, "a list of words such as [python, train.py, --lr, '{learning_rate}']", {**_LIST, "minItems": 1}),
        "The program and its arguments, in which {NAME} stands for a hyperparameter or one of "
        f"{', '.join(TOLD)}; `python` is the one that runs jobs on the worker.",
    ),
    "files": Key(
        (),
        Check(
            _files,
            "a list of paths such as [train.py, lib/], and of {url: ..., sha256: ...}",
            {"type": "array", "items": {"anyOf": [TEXT.schema, _URL]}},
        ),
        "Files and folders that go with the job, from study.yaml's folder, and files that it gets from URLs; "
        "{region} stands for the region's name.",
    ),
    "metric": Key(None, section_of(object_of(METRIC, ["name"])), "What trials are judged by."),
    "seconds": Key(
        0, OR_NEVER, "A training that has run for so long is told to end, and counts as it is then; 0: no limit."
    ),
    ENVIRONMENT: KEY,
    "retry": Key(
        (),
        Check(
            _retry,
            "a list of exit codes and texts such as [137, CUDA out of memory]",
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, TEXT.schema]}},
        ),
        "Exit codes, and texts among the last 20 lines of output, that are the machine's fault: tried again elsewhere.",
    ),
    CONTAINER: Key(
        None,
        section_of(object_of(IN_CONTAINER, ["image"])),
        "An image in which Apptainer runs the program; what runs its job is outside.",
    ),
}


def read_program(section: Section, folder: Path, region: str) -> tuple[Program, Metric]:
    """Read the program of a region whose `section` has one, and what it is judged by; paths begin at `folder`."""
    below = section.section(TRAINER)
    command, files, retry, seconds = (below.value(name, PROGRAM) for name in ("command", "files", "retry", "seconds"))
    if not command:
        below.problems.add(below.where("command"), f"missing, legal: {PROGRAM['command'].check.legal}")
    environment = read_environment(below, folder)
    metric = below.section("metric")
    name, mode, value = (metric.value(key, METRIC) for key in ("name", "mode", "value"))
    kind, path = _read_where(metric)
    if not name:
        metric.problems.add(metric.where("name"), "missing, legal: the name of what the program reports, such as auc")
    metric.finish()
    container = read_container(below, folder)
    below.finish()
    found = tuple(_find_files(below, tuple(one for one in files if isinstance(one, str)), folder, region))
    forms = [one for one in files if isinstance(one, UrlForm)]
    downloads = tuple(_find_downloads(below, forms, folder, region, {name for name, _ in found}))
    terms = Terms(kind, path, value == "best", seconds)
    return Program(command, found, retry, downloads, container, terms, environment), Metric(name, mode == "min")


def _read_where(metric: Section) -> tuple[str, str]:
    """Read in which files a metric is: their kind, and where they lie; nothing where the program reports it."""
    if "report" not in metric:
        return "", ""
    below = metric.section("report")
    found = [(kind, path) for kind in WHERE if (path := below.value(kind, WHERE))]
    below.finish()
    if len(found) != 1:
        seen = " and ".join(kind for kind, _ in found) or "none"
        metric.problems.add(metric.where("report"), f"seen {seen}, legal: one of {', '.join(WHERE)}")
    return found[0] if found else ("", "")


def read_command(
    folder: Path, command: Sequence[str], files: Sequence[str], metric: Metric, space: Space, environment: str = ""
) -> Program:
    """Return the program that stands on a command line, read as that of a study; ConfigError with every mistake."""
    mode = "min" if metric.minimize else "max"
    said = {"command": list(command), "files": list(files), "metric": {"name": metric.name, "mode": mode}}
    said |= {ENVIRONMENT: environment} if environment else {}
    problems = Problems(Document("command line", {TRAINER: said}, {}))
    section = Section(problems, [Layer({TRAINER: said}, ())])
    program, _ = read_program(section, folder, "region")
    check_space(section, program, space)
    if problems.found:
        raise ConfigError(problems.texts())
    return program


def _find_files(section: Section, patterns: tuple[str, ...], folder: Path, region: str) -> Iterator[tuple[str, Path]]:
    found: dict[str, Path] = {}
    for pattern in patterns:
        try:
            path = folder / fill_in(pattern, {"region": region})
            for name, file in _list_below(path, folder):
                if not _can_be_said(name):
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


def _find_downloads(
    section: Section, forms: Sequence[UrlForm], folder: Path, region: str, names: set[str]
) -> Iterator[Download]:
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


def check_space(section: Section, program: Program, space: Space) -> None:
    """What stands in braces must have a value in every trial, and hyperparameters have names and values to be told."""
    _check_names(section.section("search").section("space"), space)
    below = section.section(TRAINER)
    sure = {one.name for one in space if not one.when or one.default is not None}
    told = [name for name in TOLD if name != "seconds" or program.terms.seconds]
    for name in dict.fromkeys(name for word in program.command for name in placeholders_of(word)):
        if name in sure or name in told:
            continue
        legal = [*sorted(sure), *told]
        known = any(one.name == name for one in space)
        text = "has no value where its `when` does not hold; give it a default" if known else "is no hyperparameter"
        hint = "" if known else schema.nearest(name, legal)
        below.problems.add(below.where("command"), f"{{{name}}} {text}{hint}; legal: {', '.join(legal)}")


def check_seconds(section: Section, program: Program, deadline: int) -> None:
    """A training has to end before its job is removed."""
    seconds = program.terms.seconds
    if seconds >= deadline:
        below = section.section(TRAINER)
        below.problems.add(
            below.where("seconds"),
            f"seen {DURATION.write(seconds)}: job.deadline ({DURATION.write(deadline)}) removes the job before; legal: "
            "less, or a later deadline",
        )


def _check_names(below: Section, space: Space) -> None:
    for one in space:
        if one.name in (*TOLD, FAMILY) and one.name != "epochs":
            text = "that name says something else of a trial; beside `trainer`, choose another one"
            below.problems.add(below.where(one.name), f"{one.name}: {text}")
        values = [*(one.options if isinstance(one, Choice) else ()), one.default]
        for value in values:
            if isinstance(value, str) and not _can_be_said(value):
                below.problems.add(below.where(one.name), f"seen {value!r}: {UNSAYABLE}, which no command can be told")


def refuse_others(section: Section) -> None:
    """What says how nnlib trains says nothing to a program.

    What the study says may be for other regions, where a region alone has a program.
    """
    for key in OURS:
        if section.contradicts(key, TRAINER):
            section.problems.add(
                section.where(key), f"{INSTEAD.get(key, NOT_OURS)}; beside `trainer` it is not legal, remove it"
            )
    search = section.section("search")
    if "families" in section:  # no study has both
        section.problems.add(section.where("families"), f"{NOT_OURS}; beside `trainer` it is not legal, remove it")
    if search.raw("scope") == "all":
        text = "a program is run for one region; beside `trainer` it is not legal, remove it"
        search.problems.add(search.where("scope"), text)
    train, alone = section.section("train"), section.where(TRAINER)[0] in REGIONAL
    for layer in train.layers:
        for key in () if alone and layer.path[0] not in REGIONAL else layer.value:
            if key not in ("epochs", "seed"):
                train.problems.add(
                    (*layer.path, key), f"{NOT_OURS}; a program is told `epochs` and `seed`, others by search.space"
                )
