"""Programs whose data HTCondor's own plugins fetch, from a web server and from a folder of the machine."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.run.journal import Journal
from tests.support.web_files import serving
from tests.workflows.conftest import write_study
from tests.workflows.on_pool.test_programs import generate
from tests.workflows.on_pool.test_study import finish, submit

pytestmark = [pytest.mark.condor, pytest.mark.slow]

STUDY = """\
study: fetched
regions: [{name: North}, {name: "Côte, d'$(HOME) x"}]
trainer:
  command: [python, train.py, "{rate}"]
  files:
    - train.py
    - {url: "WEB/{region}.csv?download=1", sha256: SHA256SUMS, name: data/top.csv}
    - {url: "file://FOLDER/web/bonus%20of%20all.csv", sha256: BONUS}
  metric: {name: auc}
search: {rounds: 1, parallel: 2, space: {rate: {real: [0.01, 1.0], log: true}}}
job: {gpus: 0, cpus: 1, memory: 256MB, disk: 100MB, retries: 0}
"""
PROGRAM = """\
import sys
from pathlib import Path
top, bonus = (float(Path(name).read_text()) for name in ("data/top.csv", "bonus of all.csv"))
print(f"auc={top + bonus - (float(sys.argv[1]) - 0.3) ** 2}")
Path("artifact/rate").write_text(sys.argv[1])
"""


def write(folder: Path, web: str) -> Path:
    files = {"North.csv": b"0.5", "Côte, d'$(HOME) x.csv": b"0.25", "bonus of all.csv": b"0.125"}
    (folder / "web").mkdir()
    for name, content in files.items():
        (folder / "web" / name).write_bytes(content)
    sums = [f"{sha256(content).hexdigest()}  {name}\n" for name, content in files.items()]
    (folder / "SHA256SUMS").write_text("".join(sums))
    (folder / "train.py").write_text(PROGRAM)
    text = STUDY.replace("WEB", web).replace("FOLDER", str(folder))
    return write_study(folder, text.replace("BONUS", sha256(files["bonus of all.csv"]).hexdigest()))


def test_data_from_urls_to_a_champion_and_a_file_that_has_changed(pool, run_area, capsys):
    with serving(run_area / "web") as web:
        study = write(run_area, web)
        run = generate(study, capsys)
        assert main(["doctor", str(run.path)]) == 0
        assert main(["pool", "check", str(study)]) == 0
        capsys.readouterr()
        submit(run)
        assert finish(pool, run).exit_code == 0, (run.path / "manager.log").read_text()[-3000:]
        [other] = {path.name for path in (run.path / "regions").iterdir()} - {"north"}
        for slug, top in (("north", 0.625), (other, 0.375)):
            for one in Journal(run.region(slug).journal).read().settled.values():
                assert one.ok and top - 0.5 < one.value <= top
        assert main(["verify", str(run.path)]) == 0
        assert main(["replay", str(run.path), "north", "final"]) == 0
        assert "the same, bit by bit" in capsys.readouterr().out

        (run_area / "web/North.csv").write_bytes(b"0.75")  # and SHA256SUMS as before
        assert main(["replay", str(run.path), "north", "final"]) == 1
        assert "its SHA-256 is" in capsys.readouterr().err
        again = generate(study, capsys)
        submit(again)
        assert finish(pool, again).exit_code != 0
        reasons = [one.reason for one in Journal(again.region("north").journal).read().settled.values()]
        assert reasons and all("it came damaged, or what lies at" in reason for reason in reasons)
