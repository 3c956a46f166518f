"""A GPU's health from nvidia-smi's answers and the kernel's log: each sign, in each form that drivers give it."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ami.gpu_fakes import load, program
from tests.ami.smi_forms import FORMS, UUIDS, answer, gpu

health = load("gpu_health")

PENDING = "rows of its memory wait for a reset to be replaced"


def signs(form: str, under_load: bool = False, **changes: str):
    (seen,) = health.read_gpus(answer(gpu(form, **changes), form=form), under_load)
    return seen.sick, seen.warnings


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("under_load", [False, True])
def test_a_healthy_gpu_has_no_sign(form, under_load):
    assert signs(form, under_load) == ((), ())


@pytest.mark.parametrize(
    ("form", "changes", "sign"),
    [
        ("v10", {"errors": "3"}, "3 uncorrectable memory errors since it was last reset"),
        ("v12", {"errors": "2"}, "4 uncorrectable memory errors since it was last reset"),
        ("v13", {"errors": "1"}, "1 uncorrectable memory errors since it was last reset"),
        ("v10", {"pending": "Yes"}, "pages of its memory wait for a reboot to be retired"),
        ("v12", {"pending": "Yes"}, PENDING),
        ("v13", {"failed": "Yes"}, "a row of its memory could not be replaced"),
        ("v13", {"exceeded": "Yes"}, "more SRAM errors than NVIDIA lets pass"),
        ("v13", {"action": "Reset"}, "its driver asks for: Reset"),
        ("v10", {"temperature": "87"}, "87 degrees Celsius, at which it slows down"),
        ("v13", {"left": "-1"}, "41 degrees Celsius, at which it slows down"),
    ],
)
@pytest.mark.parametrize("under_load", [False, True])
def test_each_sign_of_a_sick_gpu(form, changes, sign, under_load):
    assert signs(form, under_load, **changes) == ((sign,), ())


@pytest.mark.parametrize("form", FORMS)
def test_what_only_says_something_under_load(form):
    idle = {"gen": "1", "hw_thermal": "Active", "brake": "Active", "sw_thermal": "Active"}
    assert signs(form, False, **idle) == ((), ()), "an idle GPU saves power"
    sick, warnings = signs(form, True, **idle)
    assert sick == ("slows itself down after seconds, for it is hot",)
    assert warnings == (
        "PCI generation 1 of 5 under load",
        "slowed down by its power supply",
        "slowed down by its driver, for it is hot",
    )


def test_half_of_the_lanes_are_said_and_no_reason_to_refuse_a_gpu():
    assert signs("v12", width="8x") == ((), ("8 of 16 PCI lanes",))


def test_what_does_not_apply_is_no_sign():
    changes = dict.fromkeys(("errors", "pending", "failed", "gen", "max_gen", "width", "temperature"), "N/A")
    assert signs("v12", True, **changes) == ((), ())


LOG = """\
NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05
NVRM: Xid (PCI:0000:40:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:40:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:41:00): 13, pid=79, name=python, Graphics Exception: ESR 0x5046b0=0x79
NVRM: Xid (PCI:0000:41:00): 31, pid=48, Ch 00000048
NVRM: Xid (PCI:0000:40:00): 48, pid=1, An uncorrectable double bit error (DBE) has been detected
"""


def test_xids_of_jobs_are_not_those_of_sick_gpus():
    assert health.find_xids(LOG) == {"0000:40:00.0": [79, 48]}
    assert health.find_xids("") == {}


def test_xids_are_added_to_the_gpu_at_their_address():
    gpus = health.add_xids(health.read_gpus(answer(gpu(), gpu(number=1))), health.find_xids(LOG))
    assert [each.sick for each in gpus] == [("XID 79, fell off the bus", "XID 48, uncorrectable memory error"), ()]
    assert [each.name for each in gpus] == ["GPU-a0223334", "GPU-b1223334"]


def test_two_looks_are_one_list_of_signs():
    first = health.read_gpus(answer(gpu(pending="Yes", width="8x"), gpu(number=1)))
    later = health.read_gpus(answer(gpu(number=1, gen="3"), gpu(pending="Yes", width="8x")), under_load=True)
    merged = health.merge(first, later)
    assert [each.sick for each in merged] == [(PENDING,), ()]
    assert [each.warnings for each in merged] == [("8 of 16 PCI lanes",), ("PCI generation 3 of 5 under load",)]
    assert health.merge(first, later[:1])[0] == first[0], "one that is not listed later keeps its signs"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no XML"),
        ("Failed to initialize NVML: Driver/library version mismatch", "no XML"),
        (answer(gpu().replace(UUIDS[0], 'GPU-1"\nSTART = False')), "with the UUID"),
        (answer(gpu().replace("<uuid>", "<id>").replace("</uuid>", "</id>")), "with the UUID ''"),
    ],
)
def test_what_is_no_answer(text, message):
    with pytest.raises(ValueError, match=message):
        health.read_gpus(text)


@given(st.text())
def test_any_log_can_be_searched(text):
    assert isinstance(health.find_xids(text + "\nNVRM: Xid (PCI:" + text + "): 79"), dict)


@given(st.sampled_from(["errors", "pending", "temperature", "gen", "width"]), st.text("0123456789xCN/A -", max_size=12))
def test_any_value_of_a_field_is_read(name, value):
    (seen,) = health.read_gpus(answer(gpu(**{name: value})), under_load=True)
    assert len(seen.sick) + len(seen.warnings) <= 2


def test_both_are_asked(tmp_path, monkeypatch):
    (tmp_path / "answer").write_text(answer(gpu(), gpu(number=1)))
    (tmp_path / "log").write_text(LOG)
    program(tmp_path / "bin", "nvidia-smi", f'[ "$*" = "-q -x" ] && cat {tmp_path}/answer')
    program(tmp_path / "bin", "journalctl", f'case "$*" in *--grep*) cat {tmp_path}/log ;; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert [bool(each.sick) for each in health.look()] == [True, False]
    program(tmp_path / "bin", "journalctl", "exit 1")  # no such line
    assert [bool(each.sick) for each in health.look()] == [False, False]
    program(tmp_path / "bin", "journalctl", "exit 127")
    program(tmp_path / "bin", "dmesg", f"cat {tmp_path}/log")
    assert [bool(each.sick) for each in health.look()] == [True, False]
    program(tmp_path / "bin", "nvidia-smi", "echo 'Unable to determine the device handle' >&2; exit 255")
    with pytest.raises(ValueError, match="nvidia-smi: exit code 255: Unable to determine"):
        health.look()
