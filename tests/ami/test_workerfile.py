"""worker.json: every mistake named, and nothing in the settings that somebody smuggled in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ami.conftest import load

workerfile = load("workerfile")

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"  # noqa: S105 - made up
LEAST = {"manager": "10.0.0.5", "token": {"ssm": "/regiondag/pool-token"}}


def parse(**changes):
    return workerfile.parse(json.dumps({**LEAST, **changes}))


def problems(**changes):
    with pytest.raises(workerfile.WorkerFileError) as caught:
        parse(**changes)
    return str(caught.value).splitlines()


def test_the_least_that_is_needed():
    worker = workerfile.parse(json.dumps(LEAST))
    assert (worker.host, worker.port, worker.manager) == ("10.0.0.5", 9618, "10.0.0.5:9618")
    assert (worker.idle_minutes, worker.join_minutes) == (15, 15)
    assert workerfile.pool_config(worker, {}, "/off.sh").splitlines()[1:] == [
        "CONDOR_HOST = 10.0.0.5",
        "COLLECTOR_HOST = 10.0.0.5:9618",
        "STARTD_NOCLAIM_SHUTDOWN = 900",
        "DEFAULT_MASTER_SHUTDOWN_SCRIPT = /off.sh",
    ]


def test_everything():
    worker = parse(
        manager="cm.pool.example:9700",
        domain="pool.example",
        fleet="night-1",
        idle_minutes=0,
        settings={"START": "$(START) && TARGET.x =?= 1", "NUM_CPUS": 4, "A.B": True},
    )
    attributes = {"EC2InstanceID": "i-1", "EC2InstanceType": 'g5"; X', "RegiondagFleet": "of the tag"}
    assert workerfile.pool_config(worker, attributes, "/off.sh").splitlines()[1:] == [
        "CONDOR_HOST = cm.pool.example",
        "COLLECTOR_HOST = cm.pool.example:9700",
        "UID_DOMAIN = pool.example",
        "TRUST_DOMAIN = pool.example",
        'EC2InstanceID = "i-1"',
        'RegiondagFleet = "night-1"',
        "STARTD_ATTRS = $(STARTD_ATTRS) EC2InstanceID RegiondagFleet",
        "START = $(START) && TARGET.x =?= 1",
        "NUM_CPUS = 4",
        "A.B = True",
    ]


@pytest.mark.parametrize(("manager", "host", "port"), [("[::1]", "[::1]", 9618), ("[fe80::1]:99", "[fe80::1]", 99)])
def test_ipv6(manager, host, port):
    worker = parse(manager=manager)
    assert (worker.host, worker.port) == (host, port)


def test_all_mistakes_at_once():
    text = json.dumps({"manger": "x", "token": {"ssm": ""}, "idle_minutes": -1, "join_minutes": True, "settings": []})
    with pytest.raises(workerfile.WorkerFileError) as caught:
        workerfile.parse(text)
    lines = str(caught.value).splitlines()
    assert [line.split()[0] for line in lines] == [
        '"manger"',
        "manager",
        "token.ssm",
        "idle_minutes",
        "join_minutes",
        "settings",
    ]
    assert "the keys are manager, domain, token" in lines[0]
    assert "such as 10.0.0.5" in lines[1]


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '"x"', "null"])
def test_no_object(text):
    with pytest.raises(workerfile.WorkerFileError):
        workerfile.parse(text)


BAD = ["", " ", "a b", "a\nb", "$(X)", "a;b", "-a", "a\\", 7, [], {"a": 1}, "x" * 300, 'a"b']


@pytest.mark.parametrize("value", [*BAD, "host:0", "host:65536", "host:x", "1.2.3.4:", "[::1"])
def test_bad_managers(value):
    assert problems(manager=value)[0].startswith("manager is ")


@pytest.mark.parametrize("key", ["domain", "fleet", "region"])
@pytest.mark.parametrize("value", BAD)
def test_bad_names(key, value):
    assert problems(**{key: value})[0].startswith(f"{key} is ")


@pytest.mark.parametrize("value", [-1, 1e9, "15", None, True, float("nan"), float("inf")])
def test_bad_minutes(value):
    assert "0 to stay on for ever" in problems(idle_minutes=value)[0]


@pytest.mark.parametrize("name", ["", "a b", "use", "INCLUDE", "1x", "a=b", "x\n", "a:b", "@x"])
def test_bad_setting_names(name):
    assert "is no name of an HTCondor setting" in problems(settings={name: "1"})[0]


@pytest.mark.parametrize(
    "value", ["a\nb", "a\rALLOW_ADMINISTRATOR = *", "end\\", "end\\ ", "\x00", "a\u2028b", None, [1]]
)
def test_bad_setting_values(value):
    assert problems(settings={"X": value})[0].startswith("settings.X is ")


@pytest.mark.parametrize("value", [None, {}, "eyJsecret", {"vault": "x"}, {"ssm": "a", "secret": "b"}, ["ssm"]])
def test_bad_token_sources_say_what_is_legal_and_never_the_token(value):
    (line,) = problems(token=value)
    assert '{"ssm": "/parameter"}' in line
    assert "eyJsecret" not in line


@pytest.mark.parametrize("kind", ["ssm", "secret", "text", "file"])
@pytest.mark.parametrize("value", ["", "  ", "a\nb\n", 7, None, "relative path"])
def test_bad_tokens(kind, value):
    if (kind, value) in (("ssm", "relative path"), ("secret", "relative path")):
        return
    assert problems(token={kind: value})[0].startswith(f"token.{kind} ")


def test_a_token_in_the_file_is_in_no_repr():
    worker = parse(token={"text": TOKEN})
    assert TOKEN not in repr(worker)
    assert TOKEN not in str(worker.token)
    assert TOKEN not in workerfile.pool_config(worker, {}, "/off.sh")


@pytest.mark.parametrize(
    ("text", "count"),
    [(TOKEN, 1), (f"# mine\n\n{TOKEN}\n{TOKEN}\n", 2), ("", 0), ("# only\n", 0), (f"{TOKEN}\nhello", 0), ("a.b", 0)],
)
def test_token_lines(text, count):
    assert len(workerfile.token_lines(text)) == count


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(workerfile.KEYS), JSON))
def test_any_json_is_either_good_or_explained(values):
    try:
        worker = workerfile.parse(json.dumps({**LEAST, **values}))
    except workerfile.WorkerFileError as error:
        assert str(error)
    else:
        assert worker.manager


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text(), max_size=3))
def test_no_value_becomes_more_than_one_setting(domain, attribute, settings):
    try:
        worker = parse(domain=domain or None, settings=settings)
    except workerfile.WorkerFileError:
        return
    lines = workerfile.pool_config(worker, {"EC2InstanceID": attribute}, "/off.sh").split("\n")
    extra = 2 * (worker.domain != "") + 2 * any(line.startswith("EC2InstanceID") for line in lines)
    assert len(lines) == 6 + extra + len(settings)
    assert not any(line.endswith("\\") for line in lines)
