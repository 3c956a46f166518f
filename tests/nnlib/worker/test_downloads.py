"""Files from URLs as HTCondor leaves them beside a job."""

from __future__ import annotations

import stat
from hashlib import sha256

from nnlib.contract import Status
from nnlib.worker.downloads import Download
from tests.nnlib.worker.test_program_job import run

READS = "from pathlib import Path\nprint('auc=' + Path('data/x.csv').read_text())\n"


def download(url: str, content: bytes = b"0.5") -> Download:
    return Download(url, "data/x.csv", sha256(content).hexdigest())


def test_a_program_finds_it_under_its_name_and_the_next_start_of_the_job_does_too(tmp_path):
    (tmp_path / "a%20b.csv").write_bytes(b"0.5")
    one = download("https://host/a%20b.csv?x=1")
    for _ in range(2):
        result = run(tmp_path, READS, downloads=(one,))
        assert (result.status, result.value) == (Status.OK, 0.5)
    assert stat.S_IMODE((tmp_path / "a%20b.csv").stat().st_mode) == 0o444


def test_another_file_or_none_is_tried_again_elsewhere(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"0.6")
    result = run(tmp_path, READS, downloads=(download("https://host/a.csv"),))
    assert result.status is Status.MACHINE
    assert result.reason.startswith(f"data/x.csv: its SHA-256 is {sha256(b'0.6').hexdigest()}, study.yaml says ")
    assert result.reason.endswith("it came damaged, or what lies at https://host/a.csv is another file now")
    (tmp_path / "a.csv").unlink()
    result = run(tmp_path, READS, downloads=(download("https://host/a.csv"),))
    assert result.status is Status.MACHINE and "a.csv: No such file" in result.reason
