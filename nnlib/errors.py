"""Every error a user of nnlib can meet, and the exit code each gives.

NnlibError             4   wrong input; the message says where and what is legal
|-- DataError          4   a data, model or purchases file is not what it should be
|-- DivergedError      3   training left the finite numbers: other hyperparameters are needed
|   `-- NotFiniteError 3   so did an output of an example
`-- MachineError      75   this machine cannot do it: a corrupt transfer, a full disk, a missing library
CheckpointedError     85   a checkpoint was written; to be started again
EvictedError         143   SIGTERM
"""

from __future__ import annotations

from nnlib.contract import Exit


class NnlibError(Exception):
    """Wrong input: the message says where, what was seen and what is legal.

    Next: correct what the message names. Base of all expected errors.
    """

    exit_code = Exit.BAD_INPUT


class DataError(NnlibError):
    """A data, model or purchases file is not what it should be.

    Next: `nnlib inspect FILE` says what a file holds; import it again, or fetch it again where it was cut off.
    """


class DivergedError(NnlibError):
    """Training met NaN, an infinity, or a loss far above the first one.

    Next: a lower `learning_rate`, or `clip`. In a study the trial counts as failed and the search goes on.
    """

    exit_code = Exit.DIVERGED


class NotFiniteError(DivergedError):
    """An output is not a finite number, of the example numbered `example` among those that were asked about.

    Next: train the model again with a lower `learning_rate`.
    """

    def __init__(self, example: int) -> None:
        super().__init__("an output is not a finite number; lower learning_rate")
        self.example = example


class MachineError(NnlibError):
    """The fault of this machine; another one may succeed: a corrupt transfer, a full disk, a missing library, no GPU.

    Next: repair what the message names. In a study the job is tried again elsewhere.
    """

    exit_code = Exit.MACHINE


class EvictedError(BaseException):
    """SIGTERM arrived. Not an Exception, so that no handler in between takes it for a failure.

    Next: the same command goes on from the checkpoint, if one was asked for; HTCondor does it by itself.
    """

    exit_code = Exit.EVICTED


class CheckpointedError(BaseException):
    """A checkpoint was written at the time it was asked for; the training goes on when it is started again.

    Next: nothing in a study, HTCondor starts the job again; by hand: the same command.
    """

    exit_code = Exit.CHECKPOINTED
