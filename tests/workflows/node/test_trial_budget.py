"""limits.trials and limits.disk: what searches may still try of what they share."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.config.load import load_config
from regiondag.errors import ConfigError, GiveUpError
from regiondag.node.post import settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.node.trial_budget import UNKNOWN, Claim, claim_of, share_out
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from regiondag.run.region_spec import read_spec
from regiondag.run.region_state import state_of, why_not_needed
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import END
from tests.workflows.played import play_job

CLAIMS = st.builds(
    Claim, st.integers(0, 30), st.integers(0, 8), st.one_of(st.floats(0, 10), st.sampled_from([UNKNOWN, math.inf]))
)
UK, GERMANY = "united-kingdom", "germany"


@pytest.mark.parametrize(
    ("mine", "others", "allowed"),
    [
        (Claim(4, 4, 0.5), [Claim(4, 4, 0.1), Claim(4, 4, 0.2)], 4),  # 8 of 20 are left, and nobody claims more
        (Claim(4, 4, 0.1), [Claim(4, 4, 0.5), Claim(4, 0, 9.0)], 4),  # one that is over claims nothing
        (Claim(4, 4, 0.1), [Claim(4, 4, 0.5), Claim(4, 4, 0.2)], 0),
        (Claim(4, 4, 0.1), [Claim(10, 4, 0.5)], 2),
        (Claim(4, 4, 0.1), [Claim(10, 4, 0.1)], 4),  # of equals who asks first
        (Claim(4, 4, UNKNOWN), [Claim(10, 4, math.inf)], 2),  # one that has had nothing comes first
        (Claim(9, 4, 1.0), [Claim(12, 4, 0.1)], 0),
    ],
)
def test_what_is_left_goes_where_most_is_to_be_gained(mine, others, allowed):
    assert share_out(20, mine, others, mine.next) == allowed


@given(st.integers(1, 60), CLAIMS, st.lists(CLAIMS, max_size=5), st.integers(0, 10))
def test_never_more_than_is_left_and_the_largest_claim_gets_all_of_it(most, mine, others, wanted):
    left = max(0, most - mine.had - sum(other.had for other in others))
    allowed = share_out(most, mine, others, wanted)
    assert 0 <= allowed <= min(wanted, left)
    if all(other.worth <= mine.worth for other in others):
        assert allowed == min(wanted, left)


@pytest.fixture
def run(tmp_path):
    """Two searches of two rounds of two trials, which have six for both."""
    text = STUDY.replace("limits: {", "limits: {trials: 6, ").replace("method: bayes", "method: random\n  budget: 9d")
    return create(write_study(tmp_path, text), tmp_path / "runs")


def play(run, slug, number):
    folder, node = run.region(slug), NodeName(slug, number)
    if not prepare_trial(folder, node):
        return False
    play_job(folder, node, 0.1 * (number + 1))
    settle_trial(folder, node, END)
    return True


def test_who_comes_last_is_refused_and_told_why_and_its_search_ends_well(run, capsys):
    assert [play(run, slug, number) for number in range(2) for slug in (UK, GERMANY)] == [True] * 4
    assert [play(run, UK, number) for number in (2, 3)] == [True, True]
    assert [play(run, GERMANY, number) for number in (2, 3)] == [False, False]
    folder = run.region(GERMANY)
    spec, history = read_spec(folder.spec), Journal(folder.journal).read()
    assert sorted(history.proposals) == [0, 1] and sorted(history.declined) == [2, 3]
    assert "of 6 trials (limits.trials) none is left" in why_not_needed(state_of(spec, history), history, 3)
    assert "germany_t0002: not proposed: of 6 trials (limits.trials)" in capsys.readouterr().out
    before = folder.journal.read_bytes()
    assert not prepare_trial(folder, NodeName(GERMANY, 2)) and folder.journal.read_bytes() == before
    assert prepare_final(folder, NodeName(GERMANY, None))


def test_a_search_that_is_over_leaves_its_part_to_others(run):
    for number in range(2):
        assert play(run, UK, number) and play(run, GERMANY, number)
    source = Journal(run.region(UK).journal)
    with source.locked():
        source.append("expected", trial=2, gain=0.5, stderr=0.1)
    spec = read_spec(run.region(UK).spec)
    history = source.read()
    assert claim_of(spec, history) == Claim(2, 2, 0.5)  # of networks nobody said of how many customers
    history.settled[1] = replace(history.settled[1], customers=12)
    assert claim_of(spec, history) == Claim(2, 2, 0.5 * 12)
    assert claim_of(spec, Journal(run.region(GERMANY).journal).read()) == Claim(2, 2, 0.0)
    assert not play(run, GERMANY, 2)  # two are left, and the other one gains more by them
    assert play(run, UK, 2) and play(run, UK, 3)
    assert claim_of(spec, source.read()).next == 0


def test_fewer_than_the_first_rounds_are_refused(tmp_path):
    text = STUDY.replace("limits: {", "limits: {trials: 3, ")
    with pytest.raises(ConfigError, match=r"limits\.trials: seen 3, legal: 0, or at least 4, the first rounds of all"):
        load_config(write_study(tmp_path, text))


def test_past_the_disk_of_a_run_no_round_begins_and_its_searches_end_well(tmp_path, capsys):
    text = STUDY.replace("limits: {", "limits: {disk: 20MB, ").replace("method: bayes", "method: random\n  budget: 9d")
    run = create(write_study(tmp_path, text), tmp_path / "runs")
    assert play(run, UK, 0)
    before = json.loads(run.disk.read_text())["bytes"]
    assert 0 < before < 20 << 20
    (run.region(UK).path / "trials/0000/brought").write_bytes(bytes(20 << 20))
    assert play(run, UK, 1) and play(run, UK, 2)  # its round was proposed, and what was seen is good for a minute
    assert play(run, GERMANY, 0) and play(run, GERMANY, 1)
    os.utime(run.disk, (1, 1))
    assert not play(run, GERMANY, 2)
    assert json.loads(run.disk.read_text())["bytes"] >= before + (20 << 20)
    history = Journal(run.region(GERMANY).journal).read()
    assert "(limits.disk)" in history.declined[2] and "has 20.0 MiB" in history.declined[2]
    assert "germany_t0002: not proposed: the run takes 2" in capsys.readouterr().out
    assert prepare_final(run.region(GERMANY), NodeName(GERMANY, None))
    (run.region(UK).path / "trials/0000/brought").unlink()
    os.utime(run.disk, (1, 1))
    assert play(run, GERMANY, 3)  # who asks later finds room


def test_a_run_that_has_no_room_for_any_trial_says_so(tmp_path):
    run = create(write_study(tmp_path, STUDY.replace("limits: {", "limits: {disk: 1MB, ")), tmp_path / "runs")
    with pytest.raises(GiveUpError, match=r"the run takes .* of the disk, and has 1\.0 MiB \(limits\.disk\); raise it"):
        play(run, UK, 0)
