"""Sign an image with an SSH key, and see who signed it: SHA256SUMS has its files, SHA256SUMS.sig is of ssh-keygen -Y.

ssh-keygen is on every machine, takes keys from files, agents and hardware tokens, and needs no service. It knows whose
a key is by a file of allowed signers, as git does: lines of `NAME KEYTYPE KEY`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from nnlib.contract import sha256_of
from nnlib.util.files import write_atomically
from regiondag.bake.artifact import TESTED, DiskImage
from regiondag.bake.bill import FILE as BILL
from regiondag.errors import BakeError

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
NAMESPACE = "regiondag-image"  # a signature is good for what it was made for alone
SIGNED = ("disk.raw", "manifest.json", BILL)
LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._-]+)")


def sign(image: DiskImage, key: Path) -> Path:
    """Write the digests of an image's files and their signature by a key, private or, of an agent's, public.

    Returns the signature's path; BakeError where ssh-keygen refuses the key.
    """
    missing = [name for name in SIGNED if not (image.folder / name).is_file()]
    if missing:
        raise BakeError(f"{image.folder}: {missing[0]} is missing; bake the image again")
    # The test, too, where the image has passed it.
    names = [*SIGNED, *([TESTED] if (image.folder / TESTED).is_file() else [])]
    sums = "".join(f"{sha256_of(image.folder / name)}  {name}\n" for name in names)
    signature = _ssh_keygen(["sign", "-f", str(key), "-n", NAMESPACE], sums)
    write_atomically(image.folder / SUMS, sums)
    write_atomically(image.folder / SIGNATURE, signature)
    return image.folder / SIGNATURE


def verify(image: DiskImage, signers: Path) -> str:
    """Return who of the file of allowed signers signed the image as it lies there; BakeError if nobody did."""
    folder = image.folder
    try:
        sums = (folder / SUMS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BakeError(f"{folder} is not signed ({SUMS}: {error}); regiondag bake sign {folder} --key KEY") from None
    by = ["-f", str(signers), "-n", NAMESPACE, "-s", str(folder / SIGNATURE)]
    names = _ssh_keygen(["find-principals", "-f", str(signers), "-s", str(folder / SIGNATURE)], sums).split()
    if not names:
        raise BakeError(f"{folder}: signed by a key that {signers} does not list")
    _ssh_keygen(["verify", "-I", names[0], *by], sums)
    _check_digests(folder, sums)
    return names[0]


def _check_digests(folder: Path, sums: str) -> None:
    """Raise BakeError unless the digests name all that matters, and the files have them."""
    lines = [LINE.fullmatch(line) for line in sums.splitlines()]
    named = {line[2]: line[1] for line in lines if line}
    if None in lines or not set(SIGNED) <= named.keys():
        raise BakeError(
            f"{folder}/{SUMS}: what was signed is no image of regiondag's; it must list {', '.join(SIGNED)}"
        )
    if TESTED not in named and (folder / TESTED).exists():
        raise BakeError(f"{folder}/{TESTED} is newer than the signature; sign again: regiondag bake sign {folder}")
    for name, digest in named.items():
        path = folder / name
        if not path.is_file() or path.is_symlink() or sha256_of(path) != digest:
            raise BakeError(f"{path} is not what was signed; whoever signed it can sign what is there now")


def _ssh_keygen(arguments: list[str], text: str) -> str:
    """Call ssh-keygen -Y on a text; it asks for a passphrase at the terminal where a key has one."""
    try:
        done = subprocess.run(["ssh-keygen", "-Y", *arguments], input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BakeError("ssh-keygen is not installed; on Debian and Ubuntu: apt-get install openssh-client") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split()) or "it says nothing"
        raise BakeError(f"ssh-keygen -Y {arguments[0]}: {said}")
    return done.stdout
