"""`regiondag trainer test`, as a user meets it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

from nnlib.util.terminal import measure
from regiondag.cli import main
from regiondag.trainers.trying import find_below
from tests.support.played_apptainer import write_apptainer
from tests.support.web_files import serving
from tests.workflows import shop
from tests.workflows.commands.test_completion import complete
from tests.workflows.trainers import programs
from tests.workflows.trainers.test_container import write_image

pytestmark = pytest.mark.slow

STUDY = """
study: shop
regions: [{name: Germany}, {name: United Kingdom}]
trainer:
  command: [python, train.py]
  files: [train.py]
  metric: {name: auc}
search:
  space:
    rate: {choice: [0.1, 0.2]}
    epochs: {int: [3, 50]}
job: {gpus: 0}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A study of a good program, in the folder where commands run; temporary files lie in `tmp`."""
    (tmp_path / "study").mkdir()
    (tmp_path / "tmp").mkdir()
    programs.write_program(tmp_path / "study", programs.GOOD)
    (tmp_path / "study/study.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path / "study")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path


def contain(folder: Path) -> None:
    write_image(folder / "study/tools.sif")
    inside = "  container: {image: tools.sif}\n  files:"
    (folder / "study/study.yaml").write_text(STUDY.replace("  files:", inside).replace("[3, 50]", "[3, 4]"))


def test_a_program_in_an_image(folder, capsys, monkeypatch):
    contain(folder)
    monkeypatch.setenv("PATH", f"{write_apptainer(folder / 'bin')}:{os.environ['PATH']}")
    assert main(["trainer", "test", "--verbose"]) == 0
    said = capsys.readouterr()
    assert "start          good" in said.out and "WRONG" not in said.out
    assert "asked: --silent exec --contain" in said.err, "what Apptainer was told"
    assert list((folder / "tmp").iterdir()) == []


def test_a_program_in_an_image_is_tried_outside_where_no_apptainer_is(folder, capsys, monkeypatch):
    contain(folder)
    monkeypatch.setattr("nnlib.worker.container.PROGRAMS", ("no-apptainer",))
    assert main(["trainer", "test", "--verbose"]) == 0
    assert "no Apptainer here: it is tried outside of its image" in capsys.readouterr().err


def test_the_program_of_a_study(folder, capsys):
    assert main(["trainer", "test", "--quiet", "--region", "united kingdom"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "United Kingdom: python train.py"
    assert lines[-1] == "a study can work with this program"
    assert any(line.split() == ["epochs", "good", "it", "was", "told", "3", "and", "reported", "3"] for line in lines)
    assert all(measure(line) <= 80 for line in lines)
    assert list((folder / "tmp").iterdir()) == []
    assert sorted(path.name for path in (folder / "study").iterdir()) == ["study.yaml", "train.py"]


def test_a_command(folder, capsys):
    (folder / "study/train.py").write_text(programs.NAN)
    argv = ["--metric", "auc", "--files", "train.py", "--set", "rate=0.1,0.2", "--", "python", "train.py", "{rate}"]
    assert main(["trainer", "test", *argv]) == 1
    out, err = capsys.readouterr()
    assert "auc is nan" in out and "1 WRONG" in out
    assert "start: 2 epochs" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--", "python", "train.py"], "a command needs --metric NAME"),
        (["--metric", "auc"], "--metric: only of a command, after --"),
        (["--min"], "--min: only of a command"),
        (["--set", "rate=1"], "--set: only of a command"),
        (["--set", "rate"], "legal: NAME=VALUE,VALUE"),
        (["--metric", "auc", "--region", "x", "--", "true"], "--region: only of a study"),
        (["--epochs", "0"], "legal: a whole number from 1"),
    ],
)
def test_words_that_do_not_belong_together(folder, argv, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["trainer", "test", *argv])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--metric", "auc", "--", "python", "train.py", "{lr}"], "{lr} is no hyperparameter"),
        (["--metric", "auc", "--files", "no.py", "--", "python", "no.py"], "no.py: no such file or folder"),
        (["--metric", "a b", "--", "true"], "legal: a name such as auc"),
        (["--region", "France"], "no region 'France'"),
        (["nowhere"], "nowhere: no study there"),
    ],
)
def test_what_is_not_there(folder, argv, said, capsys):
    assert main(["trainer", "test", *argv]) == 2
    assert said in capsys.readouterr().err


def test_a_study_that_nnlib_trains(folder, capsys):
    study = shop.write_shop(folder / "shop")
    shop.generate(study)
    assert main(["trainer", "test", str(study)]) == 2
    assert "no region has a trainer" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_ctrl_c_leaves_nothing(folder, number, code):
    (folder / "study/train.py").write_text("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)\n")
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    argv = [sys.executable, "-m", "regiondag", "trainer", "test", "--metric", "auc", "--files", "train.py"]
    process = subprocess.Popen(
        [*argv, "--", "python", "train.py"], cwd=folder / "study", env=environment, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while not any("train.py" in _command(pid) for pid in find_below(folder / "tmp")):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    assert b"interrupted" in process.communicate(timeout=30)[1]
    assert process.returncode == code
    assert find_below(folder / "tmp") == []
    assert list((folder / "tmp").iterdir()) == []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_shells_offer_the_studys_regions(folder):
    assert complete("regiondag trainer test --region Ger", folder / "study") == ["Germany"]
    assert complete("regiondag trainer test stu", folder / "study") == ["study.yaml"]


def test_files_from_urls_are_fetched_before_the_program_is_tried(folder, capsys):
    (folder / "web").mkdir()
    (folder / "web/Germany.csv").write_text("1\n")
    code = f"from pathlib import Path\nassert Path('data.csv').read_text() == '1\\n'\n{programs.GOOD}"
    (folder / "study/train.py").write_text(code)
    digest = sha256(b"1\n").hexdigest()
    with serving(folder / "web") as web:
        entry = f"{{url: '{web}/{{region}}.csv', sha256: {digest}, name: data.csv}}"
        (folder / "study/study.yaml").write_text(
            STUDY.replace("[train.py]\n  metric", f"[train.py, {entry}]\n  metric")
        )
        assert main(["trainer", "test", "--quiet", "--region", "germany"]) == 0
        assert main(["trainer", "test", "--quiet", "--region", "united kingdom"]) == 1
    assert "United%20Kingdom.csv: it could not be fetched: HTTP Error 404" in capsys.readouterr().err
    assert list((folder / "tmp").iterdir()) == []
