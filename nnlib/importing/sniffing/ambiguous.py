"""Where a table can be read in more than one way."""

from __future__ import annotations

from collections.abc import Sequence

from nnlib.errors import DataError


class AmbiguousError(DataError):
    """Only a person can tell: the question, which wish answers it, and the answers, each with what it would mean."""

    def __init__(self, question: str, wish: str, answers: Sequence[tuple[str, str]]) -> None:
        self.question, self.wish, self.answers = question, wish, tuple(answers)
        options = "".join(f"\n  --{wish.replace('_', '-')} {_quote(value)}   {means}" for value, means in answers)
        super().__init__(f"{question}; say which:{options}")


def _quote(text: str) -> str:
    import shlex

    return shlex.quote(text)
