"""Blocks of the documentation's pages, and the words of commands in them.

The info string's first word is a block's language; words `key="value"` come after it. A comment `<!-- run ... -->`
holds a console block which readers do not see.

    console        `$ ` begins a command, `> ` goes on with it, other lines are what it prints, `...` stands for any
      needs="pool"        it needs a running pool
      not-run="REASON"    it is not run, only parsed
    any language
      file="NAME"         is written to that file before the next command runs
    yaml           (a part of) a study.yaml, unless of="SOMETHING"
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

BLOCK = re.compile(
    r"^```(?P<language>[\w-]+)?(?P<info>[^\n]*)\n(?P<text>.*?)^```$|^<!-- run(?P<hidden>[^\n]*)\n(?P<script>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
OPTION = re.compile(r'([\w-]+)="([^"]*)"')
OPERATORS = {";", "&&", "||", "|", "&", "(", ")", ";;"}
REDIRECTIONS = {">", ">>", "<", ">&", "&>"}
SPAN = re.compile(r"(?<!`)`((?:regiondag|nnlib) [^`\n]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    page: Path
    line: int
    language: str
    text: str
    options: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command of a console block, and what the page says that it prints."""

    text: str
    output: str


def pages() -> list[Path]:
    """Return the pages of the documentation that people write."""
    return sorted(DOCS.rglob("*.md"))


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        hidden = match["script"] is not None
        options = dict(OPTION.findall((match["hidden"] if hidden else match["info"]) or ""))
        language = "console" if hidden else match["language"] or ""
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, language, match["script"] if hidden else match["text"], options))
    return found


def commands_of(block: Block) -> list[Command]:
    commands: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:], ""))
            continue
        assert commands, f"{block}: begins with output"
        last = commands[-1]
        if line.startswith("> ") and not last.output:
            commands[-1] = Command(f"{last.text}\n{line[2:]}", "")
        else:
            commands[-1] = Command(last.text, f"{last.output}{line.rstrip()}\n")
    return commands


def matches(wanted: str, printed: str) -> bool:
    """Whether what was printed is what a page shows; `...` stands for anything, alone on a line for any lines."""
    lines = [line.rstrip() for line in printed.splitlines()]
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in wanted.splitlines()
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def own_commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each call of `regiondag` or `nnlib` in a shell's line."""
    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if skip:
            skip = False
        elif word in OPERATORS or set(word) <= set("();&|"):
            if words and words[0] in ("regiondag", "nnlib"):
                yield words
            words = []
        elif word in REDIRECTIONS:
            skip = True
            words = words[:-1] if words[-1:] == ["2"] else words  # the stream that goes there
        else:
            words.append(word)


def spans_of(page: Path) -> Iterator[list[str]]:
    """Yield the words of what looks like a command in running text."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for span in SPAN.findall(text):
        try:
            words = shlex.split(span)
        except ValueError:
            continue
        if all(re.fullmatch(r"[\w./:@=,*{}\[\]|+-]+", word) for word in words):
            yield words
