"""The page for newcomers to AWS: every command of ours in it exists, and so does every file."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from regiondag.cli import build_parser

AMI = Path(__file__).parents[2] / "ami"
PAGE = (AMI / "aws.md").read_text()
BLOCKS = re.findall(r"(?:^    .*\n)+", PAGE, flags=re.M)
TYPED = re.sub(r"( |^)#.*", "", "".join(BLOCKS), flags=re.M)  # without comments
OURS = sorted({found.strip() for found in re.findall(r"\bregiondag ((?:[a-z]+ )[^\n#)|&;]*)", TYPED)})
OURS += sorted({f"fleet {found.strip()}" for found in re.findall(r"\bregiondag-fleet ([a-z]+[^\n#)|&;]*)", TYPED)})


def test_the_page_is_short():
    assert PAGE.count("\n") < 200


@pytest.mark.parametrize("command", OURS)
def test_every_command_of_ours_exists(command):
    words = shlex.split(command.replace('"$image"', "IMAGE").replace("$run", "RUN"))
    assert build_parser().parse_args(words).run


def test_every_file_that_it_names_is_here():
    named = set(re.findall(r"file://(policies/[\w.-]+)|`((?:policies/)?[\w-]+\.(?:json|hcl|yml|yaml|pkr\.hcl))`", PAGE))
    files = {one or other for one, other in named}
    policies = {path.name for path in (AMI / "policies").glob("*.json")}
    for name in files - {"fleet.yaml"}:
        assert (AMI / name).is_file() or name in policies, name


def test_the_trust_document_is_json():
    (text,) = re.findall(r"^    ec2='(.*)'$", PAGE, flags=re.M)
    assert json.loads(text)["Statement"][0]["Principal"] == {"Service": "ec2.amazonaws.com"}


@pytest.mark.parametrize("block", BLOCKS)
def test_what_is_to_be_typed_is_sound_shell(block):
    done = subprocess.run(["sh", "-n"], input=block, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_workers_token_does_not_open_the_queue():
    """DAEMON implies WRITE, and a worker of 23.9 joins, runs jobs and is reached by CCB without it."""
    program = AMI / "provision/manager/usr/local/sbin/regiondag-worker-token"
    assert re.findall(r"-authz (\w+)", program.read_text()) == ["READ", "ADVERTISE_STARTD", "ADVERTISE_MASTER"]
    for page in ("aws.md", "README.md"):
        text = (AMI / page).read_text()
        assert "sudo regiondag-worker-" in text
        assert "condor_token_create" not in text


def test_a_workers_token_ends_unless_somebody_says_otherwise(tmp_path):
    """HTCondor takes the last -lifetime (tried on 23.9 and 25.14); without one a token is good for ever."""
    for name, text in (("condor_token_create", 'echo "$@"'), ("condor_config_val", "echo pool.example")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    program = AMI / "provision/manager/usr/local/sbin/regiondag-worker-token"
    for more, last in (([], "7776000"), (["-lifetime", "3600"], "3600"), (["-key", "NEW"], "7776000")):
        done = subprocess.run(
            ["sh", program, *more],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        words = done.stdout.split()
        assert words[:2] == ["-identity", "worker@pool.example"]
        assert re.findall(r"-lifetime (\S+)", done.stdout)[-1] == last
        assert all(word in words for word in more)


def test_no_port_is_open_to_the_world():
    assert "0.0.0.0/0" not in PAGE
    assert re.findall(r"--port (\d+)", PAGE) == ["9618", "22"]
