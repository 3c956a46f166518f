"""What was seen of a program that was tried as a trial, and whether a study can work with that. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from nnlib.contract import Exit, Result, Status
from nnlib.epoch_log import Epoch
from nnlib.worker.program_job import FULL_DISK

NOTHING_LEFT = 2.0  # seconds in which a training may have come to its end by itself
LAST_PART = 1 / 3  # of all its seconds, in which it may have on a busy machine: the signal comes in the middle
SOON = 30.0  # seconds after SIGTERM in which a program leaves any machine in time
HEED = "look at regiondag.trial's Stopping, save and exit"
STOPS = "stops the whole region"
ELSEWHERE = "is tried again on another machine"


class Verdict(enum.StrEnum):
    """Whether a study can work with what was seen."""

    GOOD = "good"
    MIND = "mind"  # a study works, and would be better otherwise
    WRONG = "WRONG"
    UNTRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Tried:
    """One job of the program, as it ended."""

    epochs: int  # that it was told to train
    code: int | None  # exit code of the job; None: it was ended, as it took too long
    result: Result | None = None
    log: tuple[Epoch, ...] = ()  # of this start alone
    output: tuple[str, ...] = ()  # the last lines
    seconds: float = 0.0
    left: float | None = None  # seconds from the signal to the end
    signalled: bool = False
    whole: int = 0  # epochs that it reports undisturbed; 0: none, or not known
    saved: int = 0  # files in its checkpoint
    artifact: int = 0  # files in its artifact
    artifact_bytes: int = 0
    behind: tuple[str, ...] = ()  # commands of processes that went on when the job had ended

    @property
    def status(self) -> Status | None:
        """How it ended; None where it had to be ended."""
        return self.result.status if self.result and self.code is not None else None

    @property
    def was_stopped(self) -> bool:
        """Whether it left when it was told to, before its last epoch."""
        return (
            self.left is not None and self.status is Status.EVICTED and (len(self.log) < self.whole or not self.whole)
        )

    @property
    def was_done(self) -> bool:
        """Whether it was at its end, or all but, when it was told to leave: that shows nothing."""
        return (
            self.left is not None and not self.was_stopped and self.left < max(NOTHING_LEFT, LAST_PART * self.seconds)
        )

    @property
    def value(self) -> float | None:
        """The figure that it came to."""
        return self.result.value if self.result else None

    @property
    def reason(self) -> str:
        """Why it did not end well, in a line."""
        if self.code is None:
            return f"it had not ended after {self.seconds:.0f} s"
        if self.result is None:
            return f"the job ended with {self.code}: {self.output[-1] if self.output else 'it said nothing'}"
        return " ".join(self.result.reason.split())


@dataclass(frozen=True, slots=True)
class Finding:
    """What one try has shown."""

    tried: str
    verdict: Verdict
    text: str


def holds(findings: Iterable[Finding]) -> bool:
    """Return whether a study can work with the program."""
    return all(finding.verdict is not Verdict.WRONG for finding in findings)


def check_start(tried: Tried) -> Finding:
    """It has to train at a usual point of the space, and to say what that gave."""
    case = "start"
    if tried.status is Status.OK:
        return Finding(case, Verdict.GOOD, f"{tried.value:g} after {tried.seconds:.1f} s")
    if tried.code is None:
        text = (
            f"{tried.reason}, told to train {tried.epochs} epochs: give it fewer (--epochs), or more time (--timeout)"
        )
        return Finding(case, Verdict.WRONG, text)
    failed = "; in a study that is a failed trial, and this is a usual point of the space"
    lacking = "; what the worker's Python lacks is sent along by trainer.environment: {file: requirements.txt}"
    more = lacking if "ModuleNotFoundError" in tried.reason else failed
    return Finding(case, Verdict.WRONG, tried.reason + more * (tried.status is Status.DIVERGED))


def check_budget(tried: Tried) -> Finding:
    """It should train as many epochs as it is told, and report each of them."""
    case, seen, told = "epochs", len(tried.log), tried.epochs
    if seen > told + 1:  # the best epoch may be reported once more, at the end
        text = (
            f"it was told {told} and reported {seen}, so that budgets and pruning cannot shorten a trial; "
            "give it {epochs} in its command, or read epochs of trial.json"
        )
        return Finding(case, Verdict.MIND, text)
    if seen <= 1 < told:
        text = (
            f"it was told {told} and reported once: no trial can be ended early, and nobody sees how far it is; "
            "report after every epoch, if it has any"
        )
        return Finding(case, Verdict.MIND, text)
    return Finding(case, Verdict.GOOD, f"it was told {told} and reported {seen}")


def check_another(first: Tried, other: Tried | None) -> Finding:
    """Another point of the space has to be trained, too, and should give another figure."""
    case = "another point"
    if other is None:
        return Finding(case, Verdict.UNTRIED, "there is no other point: nothing is searched for")
    if other.status is not Status.OK:
        return Finding(case, Verdict.WRONG, f"{other.reason}; a study tries many such points")
    if other.value == first.value:
        text = f"{other.value:g} as before, to the last digit: does it read its hyperparameters?"
        return Finding(case, Verdict.MIND, text)
    return Finding(case, Verdict.GOOD, f"{other.value:g}")


def check_seed(first: Tried, again: Tried) -> Finding:
    """The same trial should give the same figure."""
    case = "same seed"
    if again.status is not Status.OK:
        return Finding(case, Verdict.WRONG, f"the same trial failed the second time: {again.reason}")
    if again.value == first.value:
        return Finding(case, Verdict.GOOD, f"{again.value:g} both times")
    text = (
        f"{first.value:g}, then {again.value:g}: a search takes such differences for those of hyperparameters; "
        "draw all that is random from {seed}"
    )
    return Finding(case, Verdict.MIND, text)


def check_end(case: str, tried: Tried) -> Finding:
    """Hyperparameters that do not work are a trial's failure, nobody else's."""
    text, verdict = tried.reason, Verdict.GOOD
    if tried.status is Status.OK:
        text = f"{tried.value:g}"
    elif tried.status is Status.DIVERGED:
        text = f"a failed trial, as it should be: {text}"
    elif tried.status is Status.BAD_INPUT:
        verdict, text = Verdict.WRONG, f"it {STOPS}: {text}; where hyperparameters are at fault, end with 1"
    elif tried.code is None:
        verdict, text = Verdict.MIND, f"{text}: job.deadline has to allow for it, or the space to be smaller"
    else:
        verdict = Verdict.MIND
        text = f"it {ELSEWHERE}, in vain: {text}; where hyperparameters are at fault, end with 1"
    return Finding(case, verdict, text)


def check_stop(tried: Tried, patience: float) -> Finding:
    """It has to leave its machine soon after SIGTERM."""
    case = "SIGTERM"
    if not tried.signalled:
        text = f"it had ended before the signal came, told {tried.epochs:,} epochs"
        return Finding(case, Verdict.UNTRIED, text)
    if tried.left is None:
        text = (
            f"it went on for {patience:.0f} s, then it was killed: a machine that goes away takes all that it had "
            f"done; let SIGTERM end it, or {HEED}"
        )
        return Finding(case, Verdict.WRONG, text)
    if tried.status is not Status.EVICTED:
        return Finding(case, Verdict.WRONG, f"the job did not end as one that was stopped: {tried.reason}")
    if not tried.was_stopped:
        text = f"it trained on to its last epoch, for {tried.left:.1f} s; let SIGTERM end it, or {HEED}"
        return Finding(case, Verdict.WRONG, text)
    if tried.left > SOON:
        text = f"it left after {tried.left:.0f} s; machines that go away seldom wait longer than {SOON:.0f} s"
        return Finding(case, Verdict.MIND, text)
    return Finding(case, Verdict.GOOD, f"it left after {tried.left:.1f} s")


def check_resume(stopped: Tried, resumed: Tried | None, whole: Tried | None) -> Finding:
    """It should go on from what it had saved, to what the `whole` training gives, where that is known."""
    case = "resume"
    if resumed is None:
        return Finding(case, Verdict.UNTRIED, "it was not stopped in the middle")
    if resumed.status is not Status.OK:
        return Finding(case, Verdict.WRONG, f"started again after the stop it failed: {resumed.reason}")
    if not stopped.saved:
        text = (
            "it begins anew: {checkpoint} was empty when it had left; keep there after every epoch what it goes on "
            "from, and read it at the start"
        )
        return Finding(case, Verdict.MIND, text)
    if not resumed.log or resumed.epochs == 1:
        text = f"it had saved {stopped.saved} files; it reports no epochs, so that nobody sees whether it reads them"
        return Finding(case, Verdict.MIND, text)
    first, last = resumed.log[0].epoch, resumed.log[-1].epoch
    most = len(whole.log) if whole else max(stopped.whole, resumed.epochs + 1)
    if first == 1 or last > most:
        text = "it begins anew, although it was given what it had saved in {checkpoint}: read that at the start"
        return Finding(case, Verdict.WRONG, text)
    if whole is not None and whole.value != resumed.value:
        text = (
            f"it goes on with epoch {first}, and ends with {resumed.value:g} in place of {whole.value:g}: save the "
            "optimizer and the random generators, too"
        )
        return Finding(case, Verdict.MIND, text)
    same = ", and ends with the figure of an undisturbed training" if whole is not None else ""
    return Finding(case, Verdict.GOOD, f"it goes on with epoch {first} of {last}{same}")


def check_kill(tried: Tried) -> Finding:
    """A training that is killed must neither count as done, nor as the fault of its hyperparameters."""
    case, said = "SIGKILL", tried.reason
    if not tried.signalled:
        return Finding(case, Verdict.UNTRIED, "it had ended before it could be killed")
    if tried.status is Status.MACHINE:
        return Finding(case, Verdict.GOOD, f"it {ELSEWHERE}")
    if tried.status is Status.OK:
        text = (
            f"its largest process was killed, and it ended with 0: half a training counts ({tried.value:g}); in a "
            "shell script: set -e, or exec"
        )
        return Finding(case, Verdict.WRONG, text)
    if tried.status is Status.DIVERGED:
        text = f"it counts as a failed trial ({said}); put that exit code into trainer.retry, or exec the training"
        return Finding(case, Verdict.MIND, text)
    return Finding(case, Verdict.WRONG, _failed(tried, "its largest process was killed"))


def check_gpu(tried: Tried, gpus: bool | None) -> Finding:
    """Without a GPU a job that asks for one belongs on another machine; `gpus`: whether it does, None: not known."""
    case = "no GPU"
    if tried.status is Status.MACHINE:
        verdict = Verdict.WRONG if gpus is False else Verdict.GOOD
        text = f"it {ELSEWHERE}" + (f", and job.gpus is 0: {tried.reason}" if gpus is False else "")
        return Finding(case, verdict, text)
    if tried.status is Status.OK and gpus:
        text = "it trains all the same, for how long? job.gpus asks for a GPU: end with 75 where there is none"
        return Finding(case, Verdict.MIND, text)
    if tried.status is Status.OK:
        return Finding(case, Verdict.GOOD, "it trains all the same")
    if tried.status is Status.DIVERGED and gpus is not False:
        text = f"it counts as a failed trial ({tried.reason}); end with 75, or put a text of that into trainer.retry"
        return Finding(case, Verdict.WRONG, text)
    return Finding(case, Verdict.WRONG, _failed(tried, "no GPU was visible"))


def check_final(tried: Tried) -> Finding:
    """The last training, of the point that won, should leave what a champion is."""
    case = "last training"
    if tried.status is not Status.OK:
        return Finding(case, Verdict.WRONG, f"{tried.reason}. The role is final in it: no champion without")
    if not tried.artifact:
        text = "it leaves nothing: the champion is hyperparameters alone; write the model into {artifact}"
        return Finding(case, Verdict.MIND, text)
    files = "file" if tried.artifact == 1 else "files"
    return Finding(case, Verdict.GOOD, f"it leaves {tried.artifact} {files}, {tried.artifact_bytes:,} bytes")


def check_full_disk(tried: Tried, final: Tried) -> Finding:
    """A last training that cannot write must not end as if it had; `final` is one that could."""
    case = "full disk"
    if final.status is not Status.OK:
        return Finding(case, Verdict.UNTRIED, "the last training has to work first")
    if tried.status is Status.MACHINE:
        return Finding(case, Verdict.GOOD, f"it {ELSEWHERE}")
    if tried.status is Status.OK and tried.artifact_bytes < final.artifact_bytes:
        text = "nothing could be written, and it ended with 0: a champion without its model; let the error end it"
        return Finding(case, Verdict.WRONG, text)
    if tried.status is Status.OK:
        return Finding(case, Verdict.GOOD, "it needs no disk")
    if tried.status is Status.DIVERGED:
        text = (
            f"it counts as a failed trial ({tried.reason}); let the system's own message ({FULL_DISK}) be among its "
            "last lines, or end with 75"
        )
        return Finding(case, Verdict.MIND, text)
    return Finding(case, Verdict.WRONG, _failed(tried, "nothing could be written"))


def check_behind(tries: Iterable[tuple[str, Tried]]) -> Finding:
    """When it has ended, nothing of it may go on."""
    case = "processes"
    for name, tried in tries:
        if tried.behind:
            more = f", and {len(tried.behind) - 1} more" if len(tried.behind) > 1 else ""
            text = f"after {name} {tried.behind[0]!r} went on{more}: it would hold the GPU; wait for it, or end it"
            return Finding(case, Verdict.WRONG, text)
    return Finding(case, Verdict.GOOD, "none went on after its job")


def _failed(tried: Tried, happened: str) -> str:
    code = f" (exit code {Exit.BAD_INPUT.value})" if tried.status is Status.BAD_INPUT else ""
    ends = f", which {STOPS}{code}" if tried.status is Status.BAD_INPUT else ""
    return f"{happened}: {tried.reason}{ends}"
