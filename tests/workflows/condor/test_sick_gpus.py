"""GPUs that workers take off: of whom they are heard, and how many are shown."""

from __future__ import annotations

import pytest

from regiondag.commands import doctor
from regiondag.condor import client
from regiondag.condor.classads import parse_ad
from regiondag.condor.sick_gpus import describe_sick_gpus, find_sick_gpus, query_sick_gpus
from regiondag.errors import PoolError
from regiondag.pool.pool import Pool

POOL = Pool("p", "installed", (25, 14, 1))


def slot(machine: str, said: str = ""):
    return parse_ad(f'Requirements = true\nName = "slot1@{machine}"\nMachine = "{machine}"\n{said}')


def sick(machine: str, why: str = "GPU-a: XID 79"):
    return slot(machine, f'RegiondagSickGPUs = "{why}"\n')


def test_only_machines_that_say_so_have_sick_gpus():
    found = find_sick_gpus([slot("w1"), sick("w2"), slot("w3", 'RegiondagSickGPUs = "none"\n'), sick("w2")])
    assert found == {"w2": "GPU-a: XID 79"}
    assert describe_sick_gpus({}) == []


def test_what_a_worker_says_is_bounded():
    [(machine, why)] = find_sick_gpus([sick("w" * 500, "\033[2J" + "x" * 5000)]).items()
    assert len(machine) <= 60 and len(why) <= 200 and "\033" not in why
    assert len(find_sick_gpus(sick(f"w{number}") for number in range(1000))) == 20


def test_of_many_machines_some_are_shown():
    lines = describe_sick_gpus({f"w{number}": "GPU-a: XID 79" for number in range(5)})
    assert lines[0] == "w0 does not offer GPU-a: XID 79"
    assert lines[3:] == ["and 2 more machines: regiondag pool check has them"]


@pytest.mark.parametrize(
    ("said", "sick_one"),
    [("", False), ('RegiondagSickGPUs = "none"\n', False), ('RegiondagSickGPUs = "GPU-a: XID 79"\n', True)],
)
def test_the_collector_is_asked_for_those_alone(monkeypatch, said, sick_one):
    """Its constraint as ClassAds evaluate it, on machines of regiondag's and on others."""
    ad, asked = slot("w1", said), []
    monkeypatch.setattr(client, "query_some_slots", lambda _, *words: asked.append(words) or [])
    query_sick_gpus(POOL)
    ad["asked"] = parse_ad(f"Requirements = {asked[0][0]}\n").lookup("Requirements")
    assert ad.eval("asked") is sick_one


def test_doctor_names_them_and_finds_the_pool_good_all_the_same(monkeypatch, capsys):
    monkeypatch.setattr(client, "query_some_slots", lambda *_: [sick("w2")])
    assert doctor._show(doctor._find_sick_gpus(POOL), as_json=False)
    assert capsys.readouterr().out == "note sick GPUs: w2 does not offer GPU-a: XID 79\n"


def test_doctor_says_that_a_pool_did_not_answer(monkeypatch):
    def fail(*_: object) -> None:
        raise PoolError("pool 'p' does not answer (slots): no route")

    monkeypatch.setattr(client, "query_some_slots", fail)
    [finding] = doctor._find_sick_gpus(POOL)
    assert finding.state == "note" and "no route" in finding.text
