"""Plugins that no machine has, and the files of keys by which HTCondor signs for S3."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from regiondag.condor import matching, preflight
from regiondag.condor.classads import parse_ad
from regiondag.condor.url_transfer import find_bad_keys

WANTS = 'TARGET.HasFileTransfer && stringListIMember("osdf",TARGET.HasFileTransferPluginMethods)'


def test_a_plugin_that_no_machine_has_is_named():
    has = 'HasFileTransfer = true\nHasFileTransferPluginMethods = "https,file"\n'
    slots = [parse_ad(f'Requirements = true\nName = "slot1@w"\n{has}')]

    def said(wants: str) -> str:
        job = parse_ad(f"Requirements = {wants}\n")
        return preflight.describe_match("train.sub", matching.match(job, slots), 0, slots).text

    assert "; no machine has a plugin of HTCondor's for osdf:// of trainer.files (regiondag pool check" in said(WANTS)
    assert "plugin" not in said(WANTS.replace("osdf", "HTTPS"))


def job(key: Path | str, secret: Path | str = ""):
    return parse_ad(
        f'Requirements = true\nEC2AccessKeyId = "{key}"\n' + f'EC2SecretAccessKey = "{secret}"\n' * bool(secret)
    )


def key_file(path: Path, text: str = "AKIA\n", mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_keys_are_two_files_of_one_s_own(tmp_path):
    assert list(find_bad_keys(parse_ad("Requirements = true\n"))) == []
    key, secret = key_file(tmp_path / "id"), key_file(tmp_path / "key", "x/y+z", 0o400)
    assert list(find_bad_keys(job(key, secret))) == []


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("sEcReT", 0o640, r"others may use it \(mode 0640\), legal: 0600; next: chmod 600 /"),
        ("sEcReT", 0o604, r"mode 0604"),
        ("", 0o600, "legal: a file with the key alone, of 1 to 4,096 bytes"),
        ("sEcReT" * 1000, 0o600, "legal: a file with the key alone"),
    ],
)
def test_what_is_no_key_of_one_s_own_is_told_without_its_text(tmp_path, text, mode, message):
    path = key_file(tmp_path / "key", text, mode)
    [said] = find_bad_keys(job(key_file(tmp_path / "id"), path))
    assert said.startswith(f"job.submit: s3_secret_access_key_file (or aws_, gs_): {path}: ") and "sEcReT" not in said
    assert re.search(message, said)


def test_what_cannot_be_read_is_no_key(tmp_path):
    said = list(find_bad_keys(job(tmp_path / "none", tmp_path)))
    assert "none: No such file or directory" in said[0] and "legal: a file with the key alone" in said[1]
    assert "legal: a path that begins with /" in next(iter(find_bad_keys(job("keys/id"))))
    os.mkfifo(tmp_path / "pipe")  # which nobody waits for
    assert "legal: a file" in next(iter(find_bad_keys(job(tmp_path / "pipe"))))
