"""Programs whose data lie in a store that speaks S3: HTCondor signs for them, and no key reaches a worker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.pool.pool import Pool, pool_folder
from regiondag.run.journal import Journal
from tests.conftest import RUN_AREAS, SUITE, started_pool
from tests.support.own_tls import OwnTls, make_own_tls
from tests.support.s3_server import serving_s3
from tests.workflows.conftest import write_study
from tests.workflows.on_pool.test_programs import generate
from tests.workflows.on_pool.test_study import finish, submit

pytestmark = [pytest.mark.condor, pytest.mark.slow]

STUDY = """\
study: stored
regions: [{name: North}, {name: "South-East"}]
trainer:
  command: [python, train.py, "{rate}"]
  files:
    - train.py
    - {url: "s3://HOST/data-of-all/2026/{region}.csv", sha256: SHA256SUMS, name: data.csv}
  metric: {name: auc}
search: {rounds: 1, parallel: 1, space: {rate: {real: [0.01, 1.0], log: true}}}
job:
  gpus: 0
  cpus: 1
  memory: 256MB
  disk: 100MB
  retries: 0
  hold_limit: 5s
  submit: {s3_access_key_id_file: KEYS/id, s3_secret_access_key_file: KEYS/key}
"""
PROGRAM = """\
import sys
from pathlib import Path
print(f"auc={float(Path('data.csv').read_text()) - (float(sys.argv[1]) - 0.3) ** 2}")
Path("artifact/rate").write_text(sys.argv[1])
"""
DATA = {"North": b"0.5", "South-East": b"0.25"}


@pytest.fixture(scope="module")
def tls() -> Iterator[OwnTls]:
    folder = RUN_AREAS / f"{os.getpid()}-tls"  # where a pool sees it
    yield make_own_tls(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def believing(pool, tls) -> Iterator[Pool]:
    """Return a pool whose machines believe an authority of our own; `pool` is there before, so that it stays."""
    folder = pool_folder(f"pytest-{SUITE}s3-{os.getpid()}")
    settings = f'STARTD_ENVIRONMENT = "X509_CERT_DIR={tls.authorities}"\n'
    assert folder
    with started_pool(folder.name, ("own authority", settings)) as pool:
        yield pool


def write(folder: Path, host: str, key: str, secret: str) -> Path:
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    for name, text in (("id", key), ("key", secret)):
        (keys / name).write_text(f"{text}\n")
        (keys / name).chmod(0o600)
    (folder / "SHA256SUMS").write_text("".join(f"{sha256(DATA[name]).hexdigest()}  {name}.csv\n" for name in DATA))
    (folder / "train.py").write_text(PROGRAM)
    return write_study(folder, STUDY.replace("HOST", host).replace("KEYS", str(keys)))


def test_data_of_s3_to_a_champion_and_a_key_that_is_wrong(believing, tls, run_area, capsys):
    objects = {f"data-of-all/2026/{name}.csv": content for name, content in DATA.items()}
    with serving_s3(tls, objects) as server:
        study = write(run_area, server.host, server.key, server.secret)
        run = generate(study, capsys)
        assert main(["doctor", str(run.path), "--pool", believing.name]) == 0
        submit(run)
        assert finish(believing, run).exit_code == 0, (run.path / "manager.log").read_text()[-3000:]
        assert {status for _, _, status in server.asked} == {200}
        for region, top in (("north", 0.5), ("south-east", 0.25)):
            for one in Journal(run.region(region).journal).read().settled.values():
                assert one.ok and top - 0.5 < one.value <= top
        assert main(["verify", str(run.path)]) == 0
        assert names_of_files_with(server.secret, run.path, pool_folder(believing.name)) == []
        # A signed URL lets its bearer in for an hour: HTCondor alone notes it, in a log of the worker.
        assert names_of_files_with("X-Amz-Signature=", run.path) == []

        capsys.readouterr()
        (run_area / "keys/key").write_text("of somebody else\n")
        again = generate(study, capsys)
        submit(again)
        assert finish(believing, again).exit_code != 0
        reasons = [one.reason for one in Journal(again.region("north").journal).read().settled.values()]
        assert reasons and all("403" in reason and "X-Amz" not in reason for reason in reasons), reasons
        assert server.asked[-1][2] == 403
        (run_area / "keys/key").chmod(0o644)
        assert main(["doctor", str(again.path), "--pool", believing.name]) == 6
        assert "keys/key: others may use it (mode 0644)" in " ".join(capsys.readouterr().out.split())


def test_a_federation_whose_plugin_no_machine_has_is_told_before_anything_is_submitted(pool, run_area, capsys):
    study = write(run_area, "host.example.org", "a", "b")
    study.write_text(study.read_text().replace("s3://host.example.org/", "osdf:///ospool/"))
    run = generate(study, capsys)
    assert main(["doctor", str(run.path), "--pool", pool.name]) == 6
    assert "no machine has a plugin of HTCondor's for osdf:// of" in " ".join(capsys.readouterr().out.split())


def names_of_files_with(text: str, *folders: Path) -> list[str]:
    files = (file for folder in folders for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return [file.name for file in files if text.encode() in file.read_bytes()]
