"""Programs in images on a real HTCondor pool, by a real Apptainer: to what serves, and through an eviction."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnlib.contract import Status
from nnlib.util.packed import list_files, unpack
from regiondag.cli import main
from regiondag.pool.pool import Pool
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from tests.conftest import RUN_AREAS, SUITE, started_pool
from tests.support.apptainer import AbsentError, fetch_apptainer
from tests.support.own_tls import OwnTls, make_own_tls
from tests.support.registry import serving_image
from tests.workflows.conftest import write_study
from tests.workflows.on_pool.test_eviction import evict, evictions
from tests.workflows.on_pool.test_programs import generate
from tests.workflows.on_pool.test_study import finish, result_of, submit
from tests.workflows.trainers.test_container import write_image

pytestmark = pytest.mark.condor

STUDY = """\
study: contained
regions: [{name: North}, {name: South}]
trainer:
  command: [awk, -f, train.awk, "{rate}", "{epochs}", "{checkpoint}", "{artifact}"]
  files: [train.awk]
  container: {image: tools.sif}
  metric: {name: auc}
train: {epochs: 3}
search:
  rounds: 1
  parallel: 2
  space: {rate: {real: [0.01, 1.0], log: true}}
job: {gpus: 0, cpus: 1, memory: 256MB, disk: 100MB}
"""
PROGRAM = """\
BEGIN {
    state = ARGV[3] "/epoch"; first = 0
    getline first < state; close(state)
    for (epoch = first + 1; epoch <= ARGV[2]; epoch++) {
        print epoch > state; close(state)
        printf "epoch %d: auc=%.6f\\n", epoch, 0.9 - (ARGV[1] - 0.3) ^ 2 - 0.1 / epoch; fflush()
        system("sleep 0.2")
    }
    print ARGV[1], ENVIRON["APPTAINER_NAME"] > (ARGV[4] "/rate")
    while ((getline line < "/etc/os-release") > 0) print line > (ARGV[4] "/os")
}
"""
# An image of five programs and their libraries, no Python among them.
BUILD = """
set -e
mkdir -p box/bin box/etc box/tmp
for program in dash mawk sleep cat env; do
    cp "/usr/bin/$program" box/bin
    for library in $(ldd "/usr/bin/$program" | grep -o '/[^ ]*'); do
        mkdir -p "box${library%/*}"
        cp -L "$library" "box$library"
    done
done
ln -s dash box/bin/sh
ln -s mawk box/bin/awk
echo image >box/etc/os-release
PATH="$1:$PATH" apptainer build tools.sif box
"""


@pytest.fixture(scope="module")
def programs(pool) -> Path:
    """Return the folder of an Apptainer that starts where the pool is; Debian's next one may need newer libraries."""
    try:
        found = fetch_apptainer()
    except AbsentError as error:
        pytest.skip(f"no Apptainer: {error}")
    tried = pool.run([f"{found}/apptainer", "--version"], capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"Debian's next Apptainer does not start here: {tried.stderr.strip()[:200]}")
    return found


@pytest.fixture(scope="module")
def tls() -> Iterator[OwnTls]:
    folder = RUN_AREAS / f"{os.getpid()}-registry"  # where a pool sees it
    yield make_own_tls(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def contained(pool, programs, tls) -> Iterator[Pool]:
    """Return a pool that knows an Apptainer, which jobs find on their PATH, and which believes and knows registries.

    `pool` is there before, so that commands find it again afterwards.
    """
    variables = f"PATH={programs}:/usr/bin:/bin SSL_CERT_DIR={tls.authorities} APPTAINER_CONFIGDIR={tls.folder}"
    settings = f'SINGULARITY = {programs}/apptainer\nSTARTER_JOB_ENVIRONMENT = "{variables}"\n'
    with started_pool(f"pytest-{SUITE}apptainer-{os.getpid()}", ("apptainer", settings)) as pool:
        yield pool


def write(folder: Path, pool: Pool, programs: Path, text: str = STUDY) -> Path:
    (folder / "train.awk").write_text(PROGRAM)
    built = pool.run(["sh", "-c", BUILD, "sh", str(programs)], cwd=folder, capture_output=True)
    assert built.returncode == 0, built.stderr
    return write_study(folder, text)


def test_a_program_in_an_image_without_python_to_what_serves(contained, programs, run_area, capsys):
    run = generate(write(run_area, contained, programs), capsys)
    assert main(["doctor", str(run.path), "--pool", contained.name]) == 0
    submit(run)
    status = finish(contained, run)
    assert status.exit_code == 0, (run.path / "manager.log").read_text()[-3000:]
    assert [(r.region, r.done, r.failed, r.final) for r in status.regions] == [
        ("North", 2, 0, "promoted"),
        ("South", 2, 0, "promoted"),
    ]
    unpack(run.region("south").champion_model, run_area / "model")
    assert (run_area / "model" / "os").read_text() == "image\n"
    assert (run_area / "model" / "rate").read_text().split()[1] == "container.sif"
    images = [run.region(slug).container for slug in ("north", "south")]
    assert images[0].samefile(images[1]), "it is large, and there once"
    assert main(["verify", str(run.path)]) == 0
    assert not [name for name in list_files(run.region("north").trial(NodeName("north", 0))) if "sif" in name]
    images[0].write_bytes(b"other")
    assert main(["verify", str(run.path)]) != 0


def test_a_program_in_an_image_goes_on_after_an_eviction(contained, programs, run_area, capsys):
    one = STUDY.replace("[{name: North}, {name: South}]", "[{name: North}]").replace("epochs: 3", "epochs: 40")
    run = generate(write(run_area, contained, programs, one.replace("parallel: 2", "parallel: 1")), capsys)
    submit(run)
    node = NodeName("north", 0)
    evict(contained, run, node, 4)
    assert finish(contained, run).exit_code == 0
    result = result_of(run.region("north").trial(node))
    assert (evictions(run, node), result.status, result.epochs, len(result.curve)) == (1, Status.OK, 40, 40)
    left = contained.run(["sh", "-c", "ps -e -o args | grep [s]quashfuse"], capture_output=True).stdout
    assert left == "", "the file system of an image that nobody uses"


def test_images_of_a_private_registry_by_docker_and_by_oras(contained, programs, tls, run_area, capsys):
    study, user = write(run_area, contained, programs), "anna:a-password"
    with serving_image(run_area / "box", run_area / "tools.sif", tls, user) as registry:
        log_in = f"registry login -u {user.replace(':', ' -p ')} docker://{registry.host}"
        variables = f"SSL_CERT_DIR={tls.authorities} APPTAINER_CONFIGDIR={tls.folder}"
        logged = contained.run(["sh", "-c", f"{variables} {programs}/apptainer {log_in}"], capture_output=True)
        assert logged.returncode == 0, logged.stderr
        known = base64.b64encode(user.encode())
        assert known in (tls.folder / "config.json").read_bytes()
        oras = f'{{name: South, trainer: {{container: {{image: "oras://{registry.host}/tools:sif"}}}}}}'
        text = STUDY.replace("tools.sif", f'"docker://{registry.host}/tools:1.0"').replace("{name: South}", oras)
        study.write_text(text)
        run = generate(study, capsys)
        assert main(["doctor", str(run.path), "--pool", contained.name]) == 0
        submit(run)
        status = finish(contained, run)
        assert status.exit_code == 0, (run.path / "manager.log").read_text()[-3000:]
        assert [(r.region, r.done, r.failed, r.final) for r in status.regions] == [
            ("North", 2, 0, "promoted"),
            ("South", 2, 0, "promoted"),
        ]
        for slug in ("north", "south"):
            unpack(run.region(slug).champion_model, run_area / slug)
            assert (run_area / slug / "os").read_text() == "image\n"
        got = {path for _, path, status in registry.asked if status == 200}
        assert {"/v2/tools/manifests/1.0", "/v2/tools/manifests/sif"} <= got
        assert [file for file in run.path.rglob("*") if file.is_file() and known in file.read_bytes()] == []

        (tls.folder / "config.json").unlink()
        assert "authentication required" in why_failed(contained, study, capsys)


def test_a_registry_without_tls_is_asked_where_jobs_say_so(contained, programs, run_area, capsys):
    study = write(run_area, contained, programs)
    with serving_image(run_area / "box", run_area / "tools.sif") as registry:
        text = STUDY.replace("tools.sif", f'"docker://{registry.host}/tools:1.0"').replace(", {name: South}", "")
        study.write_text(text)
        said = why_failed(contained, study, capsys)
        assert "the container cannot be started on this machine: " in said and "TLS handshake" in said
        study.write_text(text.replace("100MB}", "100MB, submit: {environment: APPTAINER_NOHTTPS=1}}"))
        run = generate(study, capsys)
        submit(run)
        assert finish(contained, run).exit_code == 0, (run.path / "manager.log").read_text()[-3000:]


def why_failed(pool: Pool, study: Path, capsys) -> str:
    """Run a study whose jobs do not start, and return why the first one did not."""
    study.write_text(study.read_text().replace("100MB", "100MB, retries: 0"))
    capsys.readouterr()
    run = generate(study, capsys)
    submit(run)
    assert finish(pool, run).exit_code != 0
    return next(iter(Journal(run.region("north").journal).read().settled.values())).reason


def test_what_workers_lack_is_told_before_anything_is_submitted(pool, run_area, capsys):
    write_image(run_area / "tools.sif")
    (run_area / "train.awk").write_text(PROGRAM)
    run = generate(write_study(run_area, STUDY), capsys)
    assert main(["doctor", str(run.path), "--pool", pool.name]) == 6
    said = " ".join(capsys.readouterr().out.split())
    assert "no slot meets TARGET.HasSingularity" in said and "trainer.container needs Apptainer on workers" in said
