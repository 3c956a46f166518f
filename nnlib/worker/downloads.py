"""Files that HTCondor fetched for a program from their URLs: whether they are what they should be, and where they go.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import sha256_of
from nnlib.errors import MachineError
from nnlib.util.files import link_or_copy
from nnlib.util.os_errors import describe


@dataclass(frozen=True, slots=True)
class Download:
    """A file that a job gets from a URL."""

    url: str
    name: str  # in the program's folder
    sha256: str

    @property
    def file(self) -> str:
        """The name that HTCondor gives it beside the job: the last part of the path, as the URL writes it.

        >>> Download("https://host/a/b%20c.csv?download=1", "c.csv", "").file
        'b%20c.csv'
        """
        return self.url.partition("?")[0].rpartition("/")[2]


def place_downloads(downloads: Iterable[Download], folder: Path, place: Path) -> None:
    """Put what lies in a job's `folder` into its program's, read-only, as the next start of the job needs it, too.

    Raises MachineError for a file that is missing, or another one: it may be whole where the job is tried next.
    """
    for one in downloads:
        source, target = folder / one.file, place / one.name
        try:
            seen = sha256_of(source)
            if seen != one.sha256:
                raise MachineError(
                    f"{one.name}: its SHA-256 is {seen}, study.yaml says {one.sha256}: it came damaged, or "
                    f"what lies at {one.url} is another file now"
                )
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source, target)
            target.chmod(0o444)
        except OSError as error:
            raise MachineError(f"{one.name}, from {one.url}: {describe(error)}") from error
