"""A Python function as the program of a study: the file that jobs find it in, and the study.yaml that names it."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from nnlib.util.files import write_atomically
from regiondag.api.plain import to_plain, to_yaml
from regiondag.config.load import read_config
from regiondag.errors import ConfigError, UsageError
from regiondag.newstudy.write import name_study
from regiondag.run.layout import STUDY_FILE
from regiondag.study.model import Config
from regiondag.study.program import CALL, TOLD, TRAINER
from regiondag.trainers.trainer import trainer_of
from regiondag.util.yaml_file import Document

Regions = str | Sequence[str | Mapping[str, object]]
HEAD = "# Made by regiondag.Study.from_function, which writes it anew while nobody else has changed it: "
DIGITS = 16  # of the digest of what it has written


@dataclass(frozen=True, slots=True)
class Source:
    """A function that jobs can call: it stands at the top of a file."""

    function: Callable[..., object]
    file: Path
    tree: ast.Module

    @property
    def name(self) -> str:
        """Its name in the file."""
        return self.function.__name__


def write_study_of(source: Source, folder: Path, sections: Mapping[str, object], files: Sequence[str]) -> Path:
    """Write a study whose trials call a function into `folder`, and return its path.

    `sections` are those of study.yaml; to `trainer` the call is added, and a name to all. ConfigError has every mistake
    in them; UsageError for a study that somebody has written or changed.
    """
    folder, path = folder.resolve(), folder / STUDY_FILE
    where = os.path.relpath(source.file, folder)
    name = source.file.name if where.startswith("..") else where
    command = ["python", "-m", CALL, f"{_braced(name)}:{source.name}"]
    trainer = adding(sections[TRAINER], command=command, files=[_braced(where), *files])
    whole = to_plain({"study": name_study(folder), **sections, TRAINER: trainer})
    folder.mkdir(parents=True, exist_ok=True)  # before, as files are looked for from there
    config = read_config(Document("Study.from_function", whole, {}), path)
    _refuse_mistakes(source, config)
    text = to_yaml(whole)
    _refuse_changed(path)
    write_atomically(path, f"{HEAD}{_digest(text)}\n{text}")
    return path


def find_source(function: Callable[..., object]) -> Source:
    """Return where jobs find a function; UsageError for one that no file has."""
    name = getattr(function, "__qualname__", "")
    if not inspect.isfunction(function) or "<lambda>" in name:
        raise UsageError(f"seen {function!r:.100}, legal: a function that stands at the top of a file, with `def`")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(f"{name} returns no number when it is called: it is a coroutine or a generator")
    if "." in name:
        raise UsageError(f"{name} stands inside of something else, where no job finds it; move it to the top of a file")
    module = sys.modules.get(function.__module__)
    file = Path(getattr(module, "__file__", None) or "<nowhere>").absolute()
    if not file.is_file() or not Path(inspect.unwrap(function).__code__.co_filename).is_file():
        raise UsageError(
            f"{name} is in no file, as in a notebook's cell or at a prompt, and jobs run files; begin its cell with "
            f"`%%writefile {name}.py`, then `from {name} import {name}` in another one"
        )
    if file.suffix != ".py" or (function.__module__ != "__main__" and "." in function.__module__):
        raise UsageError(
            f"{name} is in {file.name} of the package or module {function.__module__}; legal: a function in a file "
            "NAME.py that is in no package. It may import packages, which `files` takes along"
        )
    if getattr(module, function.__name__, None) is not function:
        raise UsageError(f"{function.__name__} in {file.name} is something else by now, and a job would call that")
    with tokenize.open(file) as text:
        source = Source(function, file.resolve(), ast.parse(text.read()))
    _refuse_unguarded(source)
    return source


def named_regions(regions: Regions) -> object:
    """Return regions as study.yaml has them: a pattern of files, or names."""
    if isinstance(regions, str):
        return {"from": regions}
    return [{"name": one} if isinstance(one, str) else one for one in regions]


def adding(section: object, **keys: object) -> object:
    """Return a section of study.yaml with more keys; what is no section is left to its reader.

    UsageError for a key that stands in both.
    """
    if not isinstance(section, Mapping):
        return section
    if twice := [key for key in keys if key in section]:
        raise UsageError(f"{twice[0]!r} is said by an argument of its own; remove it from the section")
    return {**keys, **section}


def _braced(path: str) -> str:
    return path.replace("{", "{{").replace("}", "}}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _refuse_changed(path: Path) -> None:
    """Raise UsageError for a study.yaml that holds what a person has written."""
    if not path.exists():
        return
    first, _, rest = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    if first != f"{HEAD}{_digest(rest)}":
        raise UsageError(
            f"{path} was written or changed by somebody; go on with Study.load({str(path.parent)!r}), remove the file, "
            "or name another folder"
        )


def _refuse_unguarded(source: Source) -> None:
    """Raise UsageError where importing the file, as jobs do, would come to this call again."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        file = frame.f_globals.get("__file__")
        if frame.f_code.co_name == "<module>" and file and Path(file).resolve() == source.file:
            line = frame.f_lineno
            statement = next(one for one in source.tree.body if one.lineno <= line <= (one.end_lineno or line))
            if not _is_guard(statement):
                raise UsageError(
                    f"{source.file.name}:{line}: jobs import this file, and would come here again; put what makes "
                    'and runs the study below `if __name__ == "__main__":`'
                )
        frame = frame.f_back


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) in (
        "__name__ == '__main__'",
        "'__main__' == __name__",
        "TYPE_CHECKING",
    )


def _refuse_mistakes(source: Source, config: Config) -> None:
    """Raise ConfigError where the function cannot be called so, or not where jobs run, with all that is wrong."""
    found = dict.fromkeys(
        text
        for region in config.regions
        for text in (
            *_wrong_parameters(source, [one.name for one in region.search.space]),
            *_left_behind(source, trainer_of(region).files),
        )
    )
    if found:
        raise ConfigError(list(found))


def _wrong_parameters(source: Source, space: Sequence[str]) -> Iterator[str]:
    signature = inspect.signature(source.function)
    parameters = signature.parameters.values()
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    names = [one.name for one in named]
    for one in () if any(one.kind is one.VAR_KEYWORD for one in parameters) else space:
        if one not in names:
            yield f"space: {one!r} is no parameter of {source.name}{signature}; rename it, or take it as `**others`"
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            yield f"{source.name}: {parameter.name!r} has no name for who calls it; remove the `/` from its parameters"
    for parameter in named:
        if parameter.default is parameter.empty and parameter.name not in (*space, *TOLD):
            legal = ", ".join((*space, *TOLD))
            yield f"{source.name}: nobody gives it {parameter.name!r}; legal: {legal}, or a parameter with a default"


def _left_behind(source: Source, files: Sequence[Path]) -> Iterator[str]:
    """Yield what the file imports of those beside it that do not go with the job."""
    there, folder = {file.resolve() for file in files}, source.file.parent
    for statement in (one for one in source.tree.body if not _is_guard(one)):
        for node in ast.walk(statement):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for name in (name.split(".")[0] for name in names):
                beside = [folder / f"{name}.py", folder / name / "__init__.py"]
                if name != "regiondag" and any(one.is_file() and one.resolve() not in there for one in beside):
                    yield f"{source.file.name} imports {name}, which lies beside it: add it to files"
