"""What HTCondor's codes of holds mean, by its manual."""

from __future__ import annotations

import doctest

import pytest

from regiondag.condor import holds
from regiondag.condor.events.attempts import is_too_small
from regiondag.condor.holds import UNKNOWN, is_spared, kind_of, removal_limit

# The codes of HoldReasonCode that the manual has, with a word of what we make of them.
CODES = {
    1: "somebody",  # UserRequest
    3: "submit file held",  # JobPolicy
    4: "credentials",  # CorruptedCredential
    5: "has no value",  # JobPolicyUndefined
    6: "could not start",  # FailedToCreateProcess
    7: "output file",  # UnableToOpenOutput
    8: "input file",  # UnableToOpenInput
    9: "output stream",  # UnableToOpenOutputStream
    10: "input stream",  # UnableToOpenInputStream
    11: "acknowledged",  # InvalidTransferAck
    12: "brought back",  # TransferOutputError
    13: "could not be sent",  # TransferInputError
    14: "folder",  # IwdError
    15: "submitted on hold",  # SubmittedOnHold
    16: "spooled",  # SpoolingInput
    18: "no leave",  # InvalidTransferGoAhead
    19: "preparation",  # HookPrepareJobFailure
    21: "machine's own rules",  # StartdHeldJob
    22: "event log",  # UnableToInitUserLog
    26: "pool's rules",  # SystemPolicy
    32: "input is larger",  # MaxTransferInputSizeExceeded
    33: "results are larger",  # MaxTransferOutputSizeExceeded
    34: "more than it had asked for",  # JobOutOfResources
    36: "checkpoint",  # FailedToCheckpoint
    46: "on machines for longer",  # JobDurationExceeded
    47: "longer than its deadline",  # JobExecuteExceeded
}


@pytest.mark.parametrize("code", range(60))
def test_every_code_has_its_words(code):
    if code in CODES:
        assert CODES[code] in kind_of(code).meaning and kind_of(code).advice
    else:
        assert kind_of(code) is UNKNOWN


def test_a_release_is_advised_where_it_may_help():
    assert kind_of(1).advice == kind_of(3).advice == "condor_release JOB"
    assert "condor_release JOB" in kind_of(7).advice


@pytest.mark.parametrize("code", [21, 26])
def test_a_rule_may_be_for_memory_or_disk(code):
    memory, disk, other = (kind_of(code, subcode) for subcode in (102, 104, 0))
    assert memory.meaning == f"{other.meaning}, for its memory" and disk.meaning == f"{other.meaning}, for its disk"
    assert memory.advice == disk.advice == kind_of(34).advice != other.advice
    assert kind_of(34, 102) == kind_of(34)  # says so already


def test_only_some_codes_and_subcodes_are_for_memory_or_disk():
    found = {(code, subcode) for code in range(60) for subcode in range(110) if is_too_small(code, subcode)}
    assert found == {(code, subcode) for code in (21, 26, 34) for subcode in (102, 104)}


def test_when_a_rule_removes():
    rule = (
        "(JobStatus == 1 && time() - EnteredCurrentStatus > 60) || "
        "(JobStatus == 5 && HoldReasonCode =!= 1 && time() - EnteredCurrentStatus > 3600)"
    )
    assert (removal_limit(rule), removal_limit(rule, 1), removal_limit(rule, 2)) == (3600, 60, None)
    assert removal_limit("JobStatus == 5") is None
    assert is_spared(rule, 1) and not is_spared(rule, 3) and not is_spared("", 1)
    assert is_spared("HoldReasonCode isnt 1 && HoldReasonCode =!= 13", 13)


def test_doctests():
    assert doctest.testmod(holds).failed == 0
