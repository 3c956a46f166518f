"""Every error a user can meet, and the exit code each gives.

RegiondagError            1   something expected went wrong; the message says what to do next
|-- UsageError            2   wrong arguments
|-- ConfigError           2   study.yaml is wrong: all problems at once
|-- PoolError             5   no pool, a dead one, or one that cannot be started here
|-- PreflightError        6   the machine lacks something, or the run would not work on this pool
|-- BakeError             7   a worker image that cannot be built, or that failed its test
|-- AwsError              8   AWS refused, or cannot be reached
|-- GiveUpError           4   PRE and POST scripts: the region cannot go on, no retry helps
`-- TryAgainError        75   POST script: the machine's fault, DAGMan retries the node
Ctrl-C exits 130; anything else is a bug and exits 3.
"""

from __future__ import annotations


class RegiondagError(Exception):
    """Something expected went wrong, and the message says what to do next; by itself: a file, a run or a trial.

    Next: what the message says. A run directory that is not as it was is looked into with `regiondag verify RUN`.
    """

    exit_code = 1


class UsageError(RegiondagError):
    """The command line asks for something that cannot be.

    Next: the message names what was seen and what is legal; `--help` has all options.
    """

    exit_code = 2


class ConfigError(RegiondagError):
    """study.yaml holds one or more mistakes: a line each, with file, line, key and what is legal.

    Next: correct them; `regiondag validate study.yaml` checks without writing anything.
    """

    exit_code = 2

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class PoolError(RegiondagError):
    """The HTCondor pool cannot be found, started or reached.

    Next: `regiondag pool status` says what runs here, `regiondag pool up` starts a pool, `regiondag pool logs` has
    what its daemons said.
    """

    exit_code = 5


class PreflightError(RegiondagError):
    """This machine, or the run directory on this pool, would not do: a line that begins with BAD for each thing.

    Next: the line that is printed brings what the machine lacks. Of a run: change `job` in study.yaml or the pool's
    slots, generate again, and ask `regiondag doctor RUN` again.
    """

    exit_code = 6


class BakeError(RegiondagError):
    """A worker image cannot be built, or did not do what a worker must.

    Next: the message names the step and the log; `regiondag bake image` goes on with what is there already.
    """

    exit_code = 7


class AwsError(RegiondagError):
    """AWS refused, or cannot be reached; `temporary` where the same call may work in a minute.

    Next: `regiondag fleet status` says what is there; the message names the permission or the limit that is missing.
    """

    exit_code = 8

    def __init__(self, text: str, *, temporary: bool = False) -> None:
        super().__init__(text)
        self.temporary = temporary


class GiveUpError(RegiondagError):
    """PRE and POST scripts: the region cannot go on, and trying the node again would not help.

    Next: `regiondag explain RUN REGION` says why; then correct it and submit the DAG again.
    """

    exit_code = 4


class TryAgainError(RegiondagError):
    """POST script: the machine's fault, the node is worth another try.

    Next: nothing, DAGMan tries again; if it lasts, `regiondag explain RUN` names the machine.
    """

    exit_code = 75
