"""Images signed and verified by the real ssh-keygen, and everything that may not pass for signed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from regiondag.bake import signature
from regiondag.bake.artifact import DiskImage, read_disk_image
from regiondag.cli import main
from regiondag.errors import BakeError
from tests.workflows.bake.conftest import MANIFEST
from tests.workflows.bake.test_changes import write_image

WHO = "images@example.org"

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "of a test", "-f", path], check=True)
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "key")


@pytest.fixture
def signers(tmp_path: Path, key: Path) -> Path:
    path = tmp_path / "allowed signers"
    path.write_text(f"{WHO} {key.with_suffix('.pub').read_text()}")
    return path


@pytest.fixture
def image(tmp_path: Path) -> DiskImage:
    image = read_disk_image(write_image(tmp_path / "image", MANIFEST))
    (image.folder / "tested.json").write_text("{}")
    return image


def test_who_signed_an_image_is_said(image, key, signers, capsys):
    assert main(["bake", "sign", str(image.folder), "--key", str(key)]) == 0
    assert capsys.readouterr().out == f"{image.folder}/SHA256SUMS.sig\n"
    assert main(["bake", "verify", str(image.folder), "--signers", str(signers)]) == 0
    assert capsys.readouterr().out == f"signed by {WHO}: {image.folder}\n"
    assert main(["bake", "sign", str(image.folder), "--key", str(key)]) == 0, "again, nobody is asked"


def test_others_need_no_regiondag(image, key, signers):
    """What the page says: sha256sum and ssh-keygen alone."""
    signature.sign(image, key)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=image.folder, check=True)
    argv = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", WHO, "-n", "regiondag-image", "-s", "SHA256SUMS.sig"]
    done = subprocess.run(argv, cwd=image.folder, input=(image.folder / "SHA256SUMS").read_bytes(), capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["disk.raw", "manifest.json", "sbom.cdx.json", "tested.json"])
@pytest.mark.parametrize("how", ["changed", "gone", "a link"])
def test_each_file_that_is_not_what_was_signed(image, key, signers, name, how):
    signature.sign(image, key)
    path = image.folder / name
    if how == "changed":
        path.write_bytes(path.read_bytes() + b" ")
    else:
        path.rename(image.folder / "elsewhere")
    if how == "a link":
        path.symlink_to("elsewhere")
    with pytest.raises(BakeError, match=f"{name} is not what was signed"):
        signature.verify(image, signers)


def test_a_key_that_is_not_listed(image, signers, tmp_path):
    signature.sign(image, make_key(tmp_path / "other"))
    with pytest.raises(BakeError, match="No principal matched"):
        signature.verify(image, signers)


def test_digests_that_were_written_anew(image, key, signers):
    signature.sign(image, key)
    image.disk.write_bytes(b"another")
    (image.folder / "SHA256SUMS").write_text((image.folder / "SHA256SUMS").read_text().replace("a", "b"))
    with pytest.raises(BakeError, match=r"(?i)signature"):
        signature.verify(image, signers)


def test_a_signature_of_something_else(image, key, signers):
    """By the right key, and for git, or of other files."""
    signature.sign(image, key)
    sums = (image.folder / "SHA256SUMS").read_text()
    for namespace, text, said in (
        ("git", sums, "namespace"),
        (
            "regiondag-image",
            "".join(line + "\n" for line in sums.splitlines() if "disk.raw" not in line),
            "must list disk.raw",
        ),
        ("regiondag-image", sums.replace("disk.raw", "../disk.raw"), "must list disk.raw"),
    ):
        argv = ["ssh-keygen", "-Y", "sign", "-f", key, "-n", namespace]
        signed = subprocess.run(argv, input=text, text=True, capture_output=True, check=True).stdout
        (image.folder / "SHA256SUMS").write_text(text)
        (image.folder / "SHA256SUMS.sig").write_text(signed)
        with pytest.raises(BakeError, match=said):
            signature.verify(image, signers)


def test_a_test_that_came_later_is_not_signed(image, key, signers):
    (image.folder / "tested.json").rename(image.folder / "later")
    signature.sign(image, key)
    assert signature.verify(image, signers) == WHO
    (image.folder / "later").rename(image.folder / "tested.json")
    with pytest.raises(BakeError, match="newer than the signature"):
        signature.verify(image, signers)


def test_what_was_never_signed_says_what_signs_it(image, key, signers, capsys):
    assert main(["bake", "verify", str(image.folder), "--signers", str(signers)]) == 7
    assert "regiondag bake sign" in capsys.readouterr().err
    (image.folder / "sbom.cdx.json").unlink()
    with pytest.raises(BakeError, match=r"sbom\.cdx\.json is missing; bake the image again"):
        signature.sign(image, key)


def test_a_key_that_is_none(image, tmp_path):
    with pytest.raises(BakeError, match="ssh-keygen -Y sign: "):
        signature.sign(image, tmp_path / "no key")
    assert not (image.folder / "SHA256SUMS").exists()


def test_a_key_in_an_agent(image, key, signers, tmp_path, monkeypatch):
    """Where the private key is elsewhere, in an agent or a token, its public one names it."""
    if shutil.which("ssh-agent") is None:
        pytest.skip("no ssh-agent")
    said = subprocess.run(
        ["ssh-agent", "-s", "-a", tmp_path / "agent"], capture_output=True, text=True, check=True
    ).stdout
    number = int(re.findall(r"SSH_AGENT_PID=(\d+)", said)[0])
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        subprocess.run(["ssh-add", "-q", key], check=True)
        key.unlink()
        signature.sign(image, key.with_suffix(".pub"))
    finally:
        os.kill(number, signal.SIGTERM)
    assert signature.verify(image, signers) == WHO


def test_without_ssh_keygen_it_is_said_what_to_install(image, key, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BakeError, match="openssh-client"):
        signature.sign(image, key)
