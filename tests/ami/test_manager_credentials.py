"""On a manager only root and the fleet's account reach the credentials of its role: rules, unit, door."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regiondag.cli import build_parser
from regiondag.errors import PoolError
from regiondag.pool import rootfs_build

ROOT = Path(__file__).resolve().parents[2]
MANAGER = ROOT / "ami/provision/manager"
RULES = MANAGER / "etc/regiondag/metadata.nft"
UNITS = MANAGER / "etc/systemd/system"
DOOR = MANAGER / "usr/local/sbin/regiondag-fleet"

# A machine of two accounts whose metadata service is real but for its address, as in `regiondag bake test`.
PROGRAM = """
import json, os, socket, subprocess, sys
from regiondag.bake.boot.imds_server import MetadataServer

rules, passwd = sys.argv[1:]
run = lambda *words: subprocess.run(words, check=True)
run("mount", "--bind", passwd, "/etc/passwd")
run("ip", "link", "set", "lo", "up")
run("ip", "address", "add", "169.254.169.254/32", "dev", "lo")
six = subprocess.run(["ip", "-6", "address", "add", "fd00:ec2::254/128", "dev", "lo", "nodad"]).returncode == 0
listening = [socket.create_server(("127.0.0.1", 8000))]
if six:
    listening.append(socket.create_server(("fd00:ec2::254", 80), family=socket.AF_INET6))
places = ["169.254.169.254:80", "127.0.0.1:8000", *(["fd00:ec2::254:80"] if six else [])]

ASK = '''
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
try:
    socket.create_connection((host, int(port)), 5).close()
except OSError as error:
    sys.exit(type(error).__name__)
'''

def reached(uid):
    prefix = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", sys.executable, "-I", "-S", "-c", ASK]
    return [place for place in places if subprocess.run([*prefix, place], stderr=subprocess.DEVNULL).returncode == 0]

with MetadataServer(address="169.254.169.254", port=80):
    before = {uid: reached(uid) for uid in (8011,)}
    for _ in range(2):  # the rules can be loaded again
        run("nft", "-f", rules)
    found = {uid: reached(uid) for uid in (0, 8010, 8011, 65534)}
    lines = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
print(json.dumps({"before": before, "found": found, "places": places, "tables": lines.count("table inet")}))
"""


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((UNITS / name).read_text())
    return parser


@pytest.mark.slow
def test_only_root_and_the_fleets_account_reach_the_metadata_service(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("a network with firewall rules needs root")
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine refuses namespaces")
    try:
        rootfs_build.install_tools(("nft", "ip"))
    except PoolError as error:
        pytest.skip(str(error))
    accounts = {"root": 0, "regiondag": 8010, "alice": 8011, "nobody": 65534}
    people = "".join(f"{name}:x:{uid}:{uid}::/nonexistent:/bin/sh\n" for name, uid in accounts.items())
    (tmp_path / "passwd").write_text(people)
    argv = ["unshare", "--net", "--mount", "--propagation", "private", "--"]
    argv += [sys.executable, "-c", PROGRAM, str(RULES), str(tmp_path / "passwd")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    everything, nothing = said["places"], ["127.0.0.1:8000"]
    assert said["before"] == {"8011": everything}  # or this test would show nothing
    assert said["found"] == {"0": everything, "8010": everything, "8011": nothing, "65534": nothing}
    assert said["tables"] == 1


def test_the_rules_come_after_those_of_the_machine_and_come_back_with_them():
    found = unit("regiondag-metadata.service")
    assert found["Unit"]["After"] == found["Unit"]["PartOf"] == "nftables.service"
    assert found["Unit"]["ReloadPropagatedFrom"] == "nftables.service"
    # `systemctl restart condor`, with which a manager begins its life, starts them, too.
    assert found["Install"]["WantedBy"].split() == ["multi-user.target", "nftables.service", "condor.service"]
    for key in ("ExecStart", "ExecReload"):
        assert found["Service"][key] == f"/usr/sbin/nft -f /{RULES.relative_to(MANAGER)}"
    assert "flush ruleset" not in re.sub("#.*", "", RULES.read_text())


@pytest.fixture
def door(tmp_path):
    """Return how to call the program with tools that write down what they were told."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool, script in (("setpriv", 'printf "%s\\n" "$@"'), ("install", ":"), ("id", "echo ${WHO:-0}")):
        (tools / tool).write_text(f"#!/bin/sh\n{script}\n")
        (tools / tool).chmod(0o755)
    (tools / "regiondag").symlink_to("/bin/true")
    text = DOOR.read_text().replace("/opt/regiondag/bin/regiondag", f"{tools}/regiondag")
    program = tmp_path / "regiondag-fleet"
    program.write_text(text.replace("home=/var/lib/regiondag-fleet", f"home={tmp_path}"))

    def call(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{tools}:{os.environ['PATH']}", **variables}
        return subprocess.run(["sh", program, *words], env=environment, capture_output=True, text=True, check=False)

    return call


def test_the_fleets_account_runs_what_is_asked_of_the_machines_file(door, tmp_path):
    said = door("scale", "--watch", "30").stdout.split("\n")[:-1]
    account, (program, *words) = said[:3], said[said.index(f"REGIONDAG_HOME={tmp_path}") + 1 :]
    assert account == ["--reuid=regiondag", "--regid=regiondag", "--init-groups"]
    assert program.endswith("/regiondag")
    assert words == ["fleet", "scale", "--file", "/etc/regiondag/fleet.yaml", "--watch", "30"]
    assert build_parser().parse_args(words).file == Path("/etc/regiondag/fleet.yaml")
    service = unit("regiondag-fleet.service")["Service"]
    assert service["ExecStart"] == f"/{DOOR.relative_to(MANAGER)} scale --watch"


def test_who_is_not_root_or_asks_for_nothing_is_told(door, tmp_path):
    done = door("up", WHO="1000")
    assert (done.returncode, done.stdout) == (2, "")
    assert "only root may; type: sudo regiondag-fleet up" in done.stderr
    assert "usage: sudo regiondag-fleet up|scale|status|down|clean" in door().stderr
    (tmp_path / "bin/regiondag").unlink()
    assert "regiondag is missing; install it: python3 -m venv /opt/regiondag" in door("up").stderr


def test_the_program_passes_shellcheck():
    tool = shutil.which("shellcheck")
    if tool is None:
        pytest.skip("no shellcheck")
    subprocess.run([tool, str(DOOR)], check=True)
