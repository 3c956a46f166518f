"""The scan that an image has to pass."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCAN = Path(__file__).resolve().parents[2] / "ami/provision/scan.py"
spec = importlib.util.spec_from_file_location("scan", SCAN)
assert spec and spec.loader
scan = importlib.util.module_from_spec(spec)
spec.loader.exec_module(scan)

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJwb29sIn0abc.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder without secrets, with much that looks a little like them."""
    for name, text in {
        "etc/shadow": "root:!*:19000:0:99999:7:::\ndaemon:*:1::::::\nregiondag:!:1::::::\n",
        "etc/machine-id": "",
        "etc/ssh/sshd_config": "PasswordAuthentication no\n",
        "etc/condor/tokens.d/.keep": "",
        "usr/lib/python3/dist-packages/tests/key.pem": "-----BEGIN RSA PRIVATE KEY-----\nof a test\n",
        "var/log/wtmp": "",
        "root/.profile": "export AWS_REGION=eu-central-1\n",
        "etc/ssl/certs/ca.pem": "-----BEGIN CERTIFICATE-----\n",
    }.items():
        write(tmp_path, name, text)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_a_clean_root_has_no_findings(root: Path) -> None:
    assert list(scan.findings(root)) == []


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("etc/ssh/ssh_host_ed25519_key", "x", "an SSH host key"),
        ("etc/condor/tokens.d/pool", "x", "a token or key of a pool"),
        ("etc/condor/passwords.d/POOL", "x", "a token or key of a pool"),
        ("etc/regiondag/worker.json", "{}", "settings of one pool"),
        ("etc/machine-id", "0123456789abcdef", "a machine's identity"),
        ("root/.ssh/authorized_keys", "ssh-ed25519 AAAA", "a person's file"),
        ("home/admin/.aws/credentials", "[default]", "a person's file"),
        ("var/lib/cloud/instance/user-data.txt", "#cloud-config", "what cloud-init kept"),
        ("var/log/condor/StartLog", "hello", "a log"),
        ("var/lib/systemd/random-seed", "x", "random seed"),
        ("etc/app.conf", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc", "a private key"),
        ("var/lib/dkms/mok.key", "-----BEGIN PRIVATE KEY-----\nabc", "a private key"),
        ("opt/deploy.sh", "export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE", "an AWS access key"),
        ("usr/local/etc/x.ini", "aws_secret_access_key = wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY", "an AWS secret key"),
        ("srv/token", JWT, "a token"),
    ],
)
def test_a_planted_secret_is_found_with_its_place(root: Path, name: str, text: str, what: str) -> None:
    write(root, name, text)
    found = list(scan.findings(root))
    assert len(found) == 1
    assert found[0].startswith(f"{name}: ")
    assert what in found[0]


@pytest.mark.parametrize(("field", "what"), [("", "needs no password"), ("$y$j9T$abc$def", "has a password")])
def test_accounts_that_a_password_or_nothing_opens_are_found(root: Path, field: str, what: str) -> None:
    write(root, "etc/shadow", f"root:{field}:19000:0:99999:7:::\n")
    assert list(scan.findings(root)) == [f"etc/shadow: root {what}"]


def test_the_program_names_what_it_found_and_exits_with_1(root: Path) -> None:
    clean = subprocess.run([sys.executable, SCAN, root], capture_output=True, text=True, check=False)
    assert (clean.returncode, clean.stderr) == (0, "")
    write(root, "etc/ssh/ssh_host_rsa_key", "x")
    done = subprocess.run([sys.executable, SCAN, root], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "scan: etc/ssh/ssh_host_rsa_key: an SSH host key; every machine makes its own\n"
