"""Every error a user can meet, and the exit code each gives.

RegiondagError            1   something expected went wrong; the message says what to do next
|-- UsageError            2   wrong arguments
|-- ConfigError           2   study.yaml is wrong: all problems at once
|-- PoolError             5   no pool, a dead one, or one that cannot be started here
|-- PreflightError        6   the run would not match or not parse on this pool
|-- BakeError             7   a worker image that cannot be built, or that failed its test
|-- AwsError              8   AWS refused, or cannot be reached
|-- GiveUpError           4   PRE and POST scripts: the region cannot go on, no retry helps
`-- TryAgainError        75   POST script: the machine's fault, DAGMan retries the node
Ctrl-C exits 130; anything else is a bug and exits 3.
"""

from __future__ import annotations


class RegiondagError(Exception):
    """Base of all expected errors."""

    exit_code = 1


class UsageError(RegiondagError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class ConfigError(RegiondagError):
    """study.yaml holds one or more mistakes."""

    exit_code = 2

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class PoolError(RegiondagError):
    """The HTCondor pool cannot be found, started or reached."""

    exit_code = 5


class PreflightError(RegiondagError):
    """The run directory would not work on this pool."""

    exit_code = 6


class BakeError(RegiondagError):
    """A worker image cannot be built, or did not do what a worker must."""

    exit_code = 7


class AwsError(RegiondagError):
    """AWS refused, or cannot be reached; `temporary` where the same call may work in a minute."""

    exit_code = 8

    def __init__(self, text: str, *, temporary: bool = False) -> None:
        super().__init__(text)
        self.temporary = temporary


class GiveUpError(RegiondagError):
    """The region cannot go on, and trying the node again would not help."""

    exit_code = 4


class TryAgainError(RegiondagError):
    """The machine's fault: the node is worth another try."""

    exit_code = 75
