"""What went wrong, grouped by cause: synthetic trials and tries of jobs, nothing on disk."""

from __future__ import annotations

import doctest

from regiondag.condor.events.attempts import Hold, Span
from regiondag.report import page_failures
from regiondag.report.page_failures import strip_numbers
from regiondag.run.layout import NodeName
from tests.workflows.report.test_page_data import attempt, data, leg, region


def test_failures_are_grouped_by_what_is_the_same_in_their_reasons():
    assert strip_numbers("slot1_2@h: nan in epoch 17,\n  0xff3 1.5e-4") == strip_numbers(
        "slot3_4@h: nan in epoch 3, 0xab 2e9"
    )
    assert strip_numbers("disk full") != strip_numbers("disk gone")
    assert len(strip_numbers("x" * 10_000)) < 300


def test_digests_are_no_part_of_a_cause():
    assert (
        strip_numbers("sha256 is 3f9ab2c1d4e5, not 0badc0ffee12")
        == strip_numbers("sha256 is a11bb2c33ffe, not 4d2f00d5")
        == "sha# is #, not #"
    )
    assert strip_numbers("GPU-1f3e0b8a-77aa-4c1e-9d3b-0123456789ab is away") == "GPU-# is away"
    assert strip_numbers("feedback is defaced") == "feedback is defaced"  # words have no figures


def test_failures_have_the_trials_and_machines_behind_them():
    node = NodeName("germany", 1)
    tries = [
        attempt(
            leg(ending="evicted", reason="spot notice 7", slot="slot1@a"),
            leg(slot="slot1@b"),
            node=node,
            exit_code=75,
            job="6.0",
        ),
        attempt(leg(slot="slot1@c"), node=node, exit_code=3),
        attempt(leg(ending="lost", slot="slot1@d"), holds=[Hold(Span(1, 2), 34, 102, "memory 12 MB")], exit_code=None),
    ]
    shown = data(tries, [region(), region("france", "failed", reason="bad data")])
    text = shown["texts"]
    found = {
        (group["kind"], group["cause"]): [
            (shown["regions"][place]["slug"], trial, text[machine])
            for place, trial, machine in zip(group["region"], group["trial"], group["machine"], strict=True)
        ]
        for group in shown["failures"]
    }
    assert found == {
        ("trial diverged", "the loss is nan in epoch #"): [("germany", 1, "c"), ("france", 1, "")],
        ("region failed", "bad data"): [("france", -1, "")],
        ("job evicted", "spot notice #"): [("germany", 1, "a")],
        ("job tried again after exit code 75", "no GPU # on w#"): [("germany", 1, "b")],
        ("job lost", ""): [("germany", 0, "d")],
        ("job held (code 34.102)", "memory # MB"): [("germany", 0, "d")],
    }
    assert shown["failures"][0]["kind"] == "trial diverged"  # the most frequent first
    assert shown["evictions"] == 2


def test_doctests():
    assert doctest.testmod(page_failures).failed == 0
