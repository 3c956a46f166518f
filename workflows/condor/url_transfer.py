"""What data from URLs ask for: HTCondor's plugins on the machines, and here the files of the keys that sign for S3."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from nnlib.util.os_errors import reason_of
from regiondag.condor.classads import ClassAd

PLUGIN = re.compile(r'stringListI?Member\("([^"]+)", ?(?:TARGET\.)?HasFileTransferPluginMethods\)')
# Attributes of a job's ad with the path of a file, and the submit command that gives it.
KEYS = {"EC2AccessKeyId": "s3_access_key_id_file", "EC2SecretAccessKey": "s3_secret_access_key_file"}
MOST = 4096  # bytes of a key


def name_lacking(clauses: Iterable[str]) -> str:
    """Say which plugin no machine has, by requirements that none meets; nothing where that is not why."""
    kinds = [kind.lower() for clause in clauses for kind in PLUGIN.findall(clause)]
    if not kinds:
        return ""
    return (
        f"; no machine has a plugin of HTCondor's for {kinds[0]}:// of trainer.files (regiondag pool check lists those "
        "there are): have it installed, or list a copy of the file"
    )


def find_bad_keys(job: ClassAd) -> Iterator[str]:
    """Yield what is wrong with the files by whose keys the access point signs URLs of a job; their text is never told.

    HTCondor looks at them only when the job has been matched, and holds it then.
    """
    for attribute, command in KEYS.items():
        path = job.eval(attribute) if attribute in job else None
        if isinstance(path, str):
            problem = _why_no_key(Path(path))
            if problem:
                yield f"job.submit: {command} (or aws_, gs_): {path}: {problem}"


def _why_no_key(path: Path) -> str:
    if not path.is_absolute():
        return "legal: a path that begins with /"
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or not 0 < facts.st_size <= MOST:
            return f"legal: a file with the key alone, of 1 to {MOST:,} bytes"
        if not os.access(path, os.R_OK):
            return "you may not read it, and so may not HTCondor for you"
    except OSError as error:
        return reason_of(error)
    mode = stat.S_IMODE(facts.st_mode)
    return f"others may use it (mode {mode:04o}), legal: 0600; next: chmod 600 {path}" if mode & 0o077 else ""
