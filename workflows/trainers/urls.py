"""Reads the files of a program that jobs get from URLs: `{url: ..., sha256: ..., name: ...}` in `trainer.files`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote, urlsplit

from nnlib.contract import MODEL_OUTPUTS, PROGRAM_FILE, PROGRAM_OUTPUTS, TRIAL_FILE
from nnlib.util.os_errors import reason_of
from nnlib.worker.downloads import Download
from nnlib.worker.program_archive import PLACE, fill_in
from regiondag.study.program import RESERVED, URL
from regiondag.util.text import holds_control_character

LEGAL = "{url: https://..., sha256: 64 hexadecimal digits or a file such as SHA256SUMS, name: its name in the job}"
# Of what the access point turns into https://, signed: it percent-encodes all else once more, in the file's name, too.
_OBJECT = re.compile(r"(s3|gs)://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~-]+)+")
LONGEST = 2000  # characters of a URL
MOST_SUMS = 10 << 20  # bytes of a file of checksums
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
# Names of what is in a query that lets its bearer in, and so must stand in no file that goes to workers and reports.
_SECRET = re.compile(r"^sig$|signature|token|key|secret|passw|credential|^auth", re.IGNORECASE)
NO_SECRETS = (
    "would go to all workers and into reports; legal: a URL that all may read, or s3:// with "
    "s3_access_key_id_file and s3_secret_access_key_file in job.submit"
)
# What lies beside a job on its machine.
_OF_JOBS = {
    TRIAL_FILE,
    PROGRAM_FILE,
    PLACE,
    f"{PLACE}.whole",
    "train.sh",
    "condor_exec.exe",
    "job.out",
    "job.err",
    "tmp",
}
_OF_JOBS |= {name for of in (MODEL_OUTPUTS, PROGRAM_OUTPUTS) for name in (*of.of_trial, *of.of_final)}


@dataclass(frozen=True, slots=True)
class UrlForm:
    """A file from a URL as study.yaml has it, in which {region} stands for the region's name."""

    url: str
    sha256: str  # 64 digits, or the path of a file of checksums
    name: str


def read_form(value: object) -> UrlForm:
    """Read one entry; ValueError says what is not legal in it."""
    if not isinstance(value, dict):
        raise ValueError(f"seen {value!r:.80}, legal: {LEGAL}")
    unknown = [key for key in value if key not in ("url", "sha256", "name")]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; legal: {LEGAL}")
    for key in ("url", "sha256"):
        if not isinstance(value.get(key), str) or not value[key]:
            raise ValueError(f"{key}: missing, or no text (quote it); legal: {LEGAL}")
    name = value.get("name", "")
    if not isinstance(name, str):
        raise ValueError(f"name: seen {name!r}, legal: its name in the job, such as data.parquet")
    return UrlForm(value["url"], value["sha256"], name)


def resolve(form: UrlForm, folder: Path, region: str) -> Download:
    """Return what a region's jobs get; ValueError says what is wrong, KeyError names a placeholder that has no value.

    Messages have the URL as study.yaml has it, and nothing of one with a secret in it.
    """
    url = fill_in(form.url, {"region": quote(region, safe="")})
    check_url(url)
    name = fill_in(form.name, {"region": region}) or unquote(Download(url, "", "").file)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or holds_control_character(name) or len(name) > 200:
        raise ValueError(f"name {name!a:.200}: legal: a relative path without .., such as data/{{region}}.parquet")
    if path.parts[0] in RESERVED:
        raise ValueError(f"{name}: a job has a file of that name; give another name")
    return Download(url, path.as_posix(), _find_sha256(form.sha256, folder, region, Download(url, "", "").file))


def check_url(url: str) -> None:
    """Raise ValueError for a URL that cannot stand in a submit file, or holds a secret."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError(f"url: a name or password before @ {NO_SECRETS}")
    if any(_SECRET.search(word.partition("=")[0]) for word in parts.query.split("&")):
        raise ValueError(f"url: its query looks signed, and {NO_SECRETS}")
    if len(url) > LONGEST or not re.fullmatch(URL, url) or parts.scheme == "data":
        raise ValueError(
            f"url {url!a:.200}: legal: https://, osdf://, s3://, file:// or another kind that HTCondor has a plugin "
            "for, then letters, digits and -._~:/?@!&=+, all others percent-encoded: %20 for a blank, %2C for a comma"
        )
    if parts.scheme in ("s3", "gs") and not _OBJECT.fullmatch(url):
        raise ValueError(
            f"url {url:.200}: legal: s3://BUCKET/KEY or s3://HOST/BUCKET/KEY, of letters, digits and -._~/ alone, as "
            "HTCondor signs for a key as it stands; give the object such a name, or list a copy of it"
        )
    file = Download(url, "", "").file
    if not file or file in (".", "..") or file in _OF_JOBS or re.match(r"\.|_condor|nnlib-", file):
        raise ValueError(f"url {url:.200}: it ends with {file!r}, which is no file's name, or one that jobs have")


def _find_sha256(text: str, folder: Path, region: str, file: str) -> str:
    if _SHA256.fullmatch(text):
        return text.lower()
    path = folder / fill_in(text, {"region": region})
    try:
        with path.open("rb") as sums:
            lines = sums.read(MOST_SUMS).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        said = reason_of(error) if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ValueError(f"sha256 {text!a:.100}: neither 64 hexadecimal digits nor a file of them: {said}") from None
    found = {}
    for line in lines:
        digest, _, name = line.partition(" ")
        if _SHA256.fullmatch(digest):
            found[name.strip().removeprefix("*").rpartition("/")[2]] = digest.lower()
    digest = found.get(file) or found.get(unquote(file), "")
    if not digest:
        raise ValueError(f"{path}: no line `SHA256  {unquote(file)}`, as sha256sum writes it, for region {region!r}")
    return digest
