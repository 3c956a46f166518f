"""What fleet.yaml may say, the worker's own program accepts: a mistake shows before a machine is paid for."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from regiondag.errors import ConfigError
from regiondag.fleet.config import DOMAIN, HOST, KNOB, NAME, PARAMETER, SECRET, load_fleet
from regiondag.fleet.template import worker_settings
from regiondag.fleet.user_data import render_user_data

LIBEXEC = Path(__file__).parents[3] / "ami" / "provision" / "files" / "usr" / "local" / "libexec" / "regiondag"


@pytest.fixture(scope="module")
def workerfile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("regiondag_workerfile", LIBEXEC / "workerfile.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def text_of(pattern: str) -> st.SearchStrategy[str]:
    """Texts that match; short ones, for the long ones take hypothesis a second each."""
    return st.from_regex(
        re.sub(r"\{([01]),\d{2,}\}", r"{\1,9}", pattern), fullmatch=True, alphabet=st.characters(max_codepoint=0x7E)
    )


VALUES = st.text(max_size=20) | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60)
@given(
    values=st.fixed_dictionaries(
        {
            "fleet": text_of(NAME.pattern),
            "manager": text_of(HOST.pattern),
            "domain": text_of(DOMAIN.pattern),
            "token": st.fixed_dictionaries({"ssm": text_of(PARAMETER.pattern)})
            | st.fixed_dictionaries({"secret": text_of(SECRET.pattern)}),
            "idle_minutes": st.integers(0, 7 * 24 * 60),
            "join_minutes": st.integers(0, 7 * 24 * 60),
            "lease_minutes": st.integers(5, 7 * 24 * 60),
            "settings": st.dictionaries(text_of(KNOB.pattern), VALUES, max_size=3),
        }
    )
)
def test_the_worker_accepts_what_the_file_may_say(values, workerfile, tmp_path_factory):
    given_values = {
        "region": "eu-central-1",
        "instances": ["g5.xlarge"],
        "subnets": ["subnet-1a"],
        "security_groups": ["sg-1a"],
        "instance_profile": "worker",
        "workers": {"max": 1},
        **values,
    }
    path = tmp_path_factory.getbasetemp() / "fleet.yaml"
    path.write_text(json.dumps(given_values))
    try:
        fleet = load_fleet(path)
    except ConfigError:
        return  # refused with a message; what is accepted must work
    (file,) = yaml.safe_load(render_user_data(worker_settings(fleet)))["write_files"]
    worker = workerfile.parse(file["content"])
    assert worker.fleet == values["fleet"]
    assert worker.domain == values["domain"]
    assert {worker.token.kind: worker.token.value} == values["token"]
    assert (worker.idle_minutes, worker.join_minutes) == (values["idle_minutes"], values["join_minutes"])
    assert worker.lease_minutes == values["lease_minutes"]
    assert worker.settings == {name: str(value) for name, value in values["settings"].items()}
    found = HOST.fullmatch(values["manager"])
    assert found
    assert worker.port == int(found["port"] or 9618)
    assert values["manager"] == worker.host + (f":{found['port']}" if found["port"] else "")


def test_the_example_is_what_a_worker_accepts(workerfile):
    fleet = load_fleet(Path(__file__).parents[3] / "ami" / "fleet.example.yaml")
    worker = workerfile.parse(json.dumps(worker_settings(fleet)))
    assert worker.lease_minutes == fleet.lease_minutes == 60
    assert "lease_minutes" not in worker_settings(fleet)  # images that were baked earlier do not know it
    assert (worker.manager, worker.fleet, worker.domain) == ("10.0.0.5:9618", "demo", "pool.example")
