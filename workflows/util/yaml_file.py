"""Read a YAML file with the line of every key. The only module that imports PyYAML.

Scalars follow YAML 1.2's core schema, because YAML 1.1 reads the region `NO` as false and `1e-4` as text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nnlib.plain_file import read_most
from nnlib.util.os_errors import describe
from regiondag.errors import ConfigError

KeyPath = tuple[str | int, ...]

CORE_TAGS = "tag:yaml.org,2002:"
MOST_BYTES = 8 << 20  # of a file; one with 10,000 regions that say much has 1 MB
MAX_VALUES = 1_000_000  # a few nested aliases can stand for billions of values


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed YAML file: plain values, and the line (from 1) on which each key path stands."""

    file: str
    value: Any
    lines: dict[KeyPath, int]


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's API)


_LEGAL: dict[str, re.Pattern[str]] = {}  # what a scalar of each tag may be, tags that are written out included
for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9]+$", list("-+0123456789")),
    (
        "float",
        r"^[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$",
        list("-+0123456789."),
    ),
    ("merge", r"^<<$", ["<"]),
):
    _LEGAL[_tag] = re.compile(_pattern)
    _Loader.add_implicit_resolver(f"{CORE_TAGS}{_tag}", _LEGAL[_tag], _first)


def load_yaml(path: Path, what: str = "study", hint: str = "`regiondag init retail DIR` writes an example") -> Document:
    """Read and parse `path`; ConfigError with file, line and column when that cannot be done.

    `what` the file must hold and the `hint` how to come by one are only used in messages.
    """
    try:
        text = read_most(path, MOST_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise ConfigError([f"{path}: no such file; {hint}"]) from None
    except IsADirectoryError:
        inside = path / "study.yaml"
        instead = f"give the file in it: {inside}" if what == "study" and inside.is_file() else hint
        raise ConfigError([f"{path}: is a folder, legal: a file that holds a {what}; {instead}"]) from None
    except OSError as error:
        raise ConfigError([describe(error)]) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            [f"{path}: byte {error.start} is not UTF-8; it must hold a {what}, as UTF-8 text; {hint}"]
        ) from error
    return parse_yaml(text, str(path), what, hint)


def parse_yaml(text: str, file: str, what: str = "study", hint: str = "") -> Document:
    """Parse YAML text; `file`, `what` it must hold and the `hint` are only used in messages."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            raise ConfigError([f"{file}: empty; it must hold a {what}{hint and f'; {hint}'}"])
        reader = _Reader(loader, file)
        return Document(file, reader.value(root, ()), reader.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        hint = "; put a value that holds a ? into quotes" if "got '?'" in str(error.problem) else ""
        raise ConfigError([f"{where}: not YAML: {error.problem or error.context}{hint}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"{file}: not YAML: {error}"]) from error
    except (OverflowError, ValueError) as error:  # PyYAML's own, of \\U99999999
        raise ConfigError([f"{file}: not YAML: a character that there is not ({error})"]) from error
    except RecursionError:
        raise ConfigError([f"{file}: nested too deeply, or an alias that contains itself"]) from None


class _Reader:
    """Turns PyYAML's node tree into plain values and notes where each key stands."""

    def __init__(self, loader: _Loader, file: str) -> None:
        self.loader = loader
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self.count = 0
        self.merged: set[int] = set()  # ids of nodes that have their merged keys already

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        self.count += 1
        if self.count > MAX_VALUES:
            raise ConfigError([f"{self.file}: more than {MAX_VALUES:,} values; too many nested aliases?"])
        kind = node.tag.removeprefix(CORE_TAGS)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        if id(node) not in self.merged:
            self._check_keys(node)
            self._merge(node)
        result: dict[str, Any] = {}
        for key, item in node.value:
            name = self._text(key)
            self.lines[(*path, name)] = key.start_mark.line + 1
            result[name] = self.value(item, (*path, name))
        return result

    def _merge(self, node: yaml.MappingNode) -> None:
        """Take in what `<<: *defaults` names, once; the mapping's own keys come last and win.

        Each key is kept once, lest merges of merges multiply.
        """
        self.merged.add(id(node))
        for key, below in node.value:
            if key.tag == f"{CORE_TAGS}merge":
                for one in below.value if isinstance(below, yaml.SequenceNode) else [below]:
                    if isinstance(one, yaml.MappingNode) and id(one) not in self.merged:
                        self._check_keys(one)
                        self._merge(one)
        self.loader.flatten_mapping(node)
        node.value = list({key.value: (key, item) for key, item in node.value}.values())

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError([f"{self.file}:{line}: a key must be plain text"])
            if key.value in seen and key.value != "<<":
                raise ConfigError([f"{self.file}:{line}: the key {key.value!r} stands here a second time"])
            seen.add(key.value)

    def _scalar(self, node: yaml.Node) -> Any:
        tag = node.tag.removeprefix(CORE_TAGS)
        if isinstance(node, yaml.ScalarNode):
            if tag == "str":
                return self._text(node)
            text = str(node.value)
            legal = tag in _LEGAL and _LEGAL[tag].fullmatch(text) is not None
            if tag == "null" and legal:
                return None
            if tag == "bool" and legal:
                return text.lower() == "true"
            if tag in ("int", "float"):
                try:
                    if legal:
                        return (
                            int(text)
                            if tag == "int"
                            else float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
                        )
                except ValueError:  # thousands of digits
                    pass
                raise self._wrong(node, f"{text[:40]!r} is no number")
        raise self._wrong(node, f"the tag {node.tag!r} is not allowed; use plain values")

    def _text(self, node: yaml.ScalarNode) -> str:
        """Return a text; of two halves of a character, as JSON writes it, one."""
        text = str(node.value)
        try:
            return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._wrong(node, f"{text[:40]!r} holds half of a character") from None

    def _wrong(self, node: yaml.Node, text: str) -> ConfigError:
        return ConfigError([f"{self.file}:{node.start_mark.line + 1}: {text}"])
