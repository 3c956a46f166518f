"""Programs as jobs, in processes of their own: real `nnlib train` in a folder, as HTCondor calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nnlib.contract import (
    PROGRAM_CHECKPOINT_FILE,
    PROGRAM_FILE,
    PROGRAM_MODEL_FILE,
    RESULT_FILE,
    TRIAL_FILE,
    Exit,
    Metric,
    Result,
    Role,
    Status,
    TrainSettings,
    Trial,
    result_from_json,
    sha256_of,
    trial_to_json,
)
from nnlib.epoch_log import read_epochs
from nnlib.util.packed import list_files, pack, unpack
from nnlib.worker.program_archive import FILES, HELPER, MANIFEST, Program, fill_in, placeholders_of, program_to_json

TRIAL = Trial(
    node="north_t0003",
    region="North",
    number=3,
    role=Role.TUNE,
    network="",
    hyperparameters={"lr": 0.5, "deep": True, "kind": "a b"},
    train=TrainSettings(epochs=4, seed=9),
    metric=Metric("auc"),
    train_files=(),
    program=PROGRAM_FILE,
)
SAVES = """
import json, os, signal, sys, time
from pathlib import Path
trial = json.loads(Path("trial.json").read_text())
state = Path("checkpoint/epoch")
first = int(state.read_text()) + 1 if state.exists() else 1
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
for epoch in range(first, 9):
    print(f"epoch={epoch} auc={epoch / 10}")
    state.with_suffix(".part").write_text(str(epoch))
    state.with_suffix(".part").replace(state)
    time.sleep(0.3)
    if told:
        sys.exit(0)
Path("artifact/first").write_text(str(first))
"""


def write_job(folder: Path, code: str, trial: Trial = TRIAL, command: tuple[str, ...] = (), **program: Any) -> Path:
    """Write the folder of a job whose program is Python `code`."""
    folder.mkdir(exist_ok=True)
    words = command or ("python", "train.py")
    packed = {
        MANIFEST: program_to_json(Program(words, **program)).encode(),
        f"{FILES}train.py": code.encode(),
        f"{HELPER}regiondag/__init__.py": b"",
        f"{HELPER}regiondag/trial.py": (Path(__file__).parents[3] / "workflows/trial.py").read_bytes(),
    }
    pack(packed, folder / PROGRAM_FILE)
    trial = replace(trial, sha256={PROGRAM_FILE: sha256_of(folder / PROGRAM_FILE)})
    (folder / TRIAL_FILE).write_text(trial_to_json(trial))
    return folder


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "nnlib", "train", "--trial", TRIAL_FILE, *words]
    return subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder: Path, code: str, trial: Trial = TRIAL, words: tuple[str, ...] = (), **program: Any) -> Result:
    """Run a program to its end and return the result, whose status its exit code says, too."""
    process = start(write_job(folder, code, trial, **program), *words)
    out, err = process.communicate(timeout=60)
    result = result_of(folder)
    codes = {Status.OK: 0, Status.PRUNED: 0, Status.DIVERGED: 3, Status.BAD_INPUT: 4, Status.MACHINE: 75}
    assert process.returncode == codes.get(result.status, process.returncode), (out, err)
    assert not (folder / "program").exists()
    return result


def result_of(folder: Path) -> Result:
    return result_from_json((folder / RESULT_FILE).read_text())


def wait_for_epochs(folder: Path, count: int) -> None:
    end = time.monotonic() + 30
    while len(read_epochs(folder / "log.jsonl")) < count:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_last_line_with_the_metric_is_its_value(tmp_path):
    result = run(tmp_path, "print('auc=0.3 loss=2')\nprint('nothing')\nprint('auc=0.25 loss=1')")
    assert (result.status, result.value, result.metrics) == (Status.OK, 0.25, {"auc": 0.25, "loss": 1.0})
    assert (result.curve, result.epochs, result.node) == ((0.3, 0.25), 2, "north_t0003")
    assert [epoch.loss for epoch in read_epochs(tmp_path / "log.jsonl")] == [2.0, 1.0]


def test_a_program_is_told_its_trial(tmp_path):
    code = "import json, sys\nprint(json.dumps([json.load(open('trial.json')), sys.argv[1:]]))\nprint('auc=1')"
    command = ("python", "train.py", "--lr={lr}", "{deep}", "{kind}", "{{x}}", "{region}{seed}{epochs}{metric}")
    process = start(write_job(tmp_path, code, command=command))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    told, words = json.loads(out.splitlines()[0])
    assert words == ["--lr=0.5", "true", "a b", "{x}", "North94auc"]
    folders = {name: told.pop(name) for name in ("checkpoint", "artifact")}
    assert folders == {name: str(tmp_path / "program" / name) for name in folders}
    assert told == {
        "version": 1,
        "region": "North",
        "trial": 3,
        "role": "tune",
        "hyperparameters": {"lr": 0.5, "deep": True, "kind": "a b"},
        "seed": 9,
        "epochs": 4,
        "seconds": None,
        "metric": {"name": "auc", "mode": "max"},
    }


def test_reports_of_the_helper_take_the_place_of_lines(tmp_path):
    code = (
        "from regiondag.trial import load, report\nassert load()['region'] == 'North'\n"
        "report(epoch=0, auc=0.5)\nreport(epoch=1, auc=0.75, loss=0.1, stderr=0.01)\nprint('auc=0.1')"
    )
    result = run(tmp_path, code)
    assert (result.value, result.stderr, result.curve) == (0.75, 0.01, (0.5, 0.75))


def test_result_json_has_the_last_word(tmp_path):
    code = "import json\nprint('auc=0.1')\njson.dump({'auc': 0.9, 'f1': 0.5}, open('result.json', 'w'))"
    result = run(tmp_path, code)
    assert (result.value, result.metrics["f1"], result.curve) == (0.9, 0.5, (0.1,))


def test_epochs_that_were_not_reported_are_as_the_next_one(tmp_path):
    result = run(tmp_path, "print('epoch=2 auc=0.2')\nprint('epoch=5 auc=0.5')")
    assert result.curve == (0.2, 0.2, 0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("code", "epochs"), [("print('auc=0.5')", 0), ("print('epoch=0 auc=0.5')", 1), ("print('auc=0.5')\n" * 3, 0)]
)
def test_figures_without_numbers_say_nothing_of_epochs(tmp_path, code, epochs):
    """The last training is told as many as the best trial had, and all of them where that is not known."""
    assert run(tmp_path, code).best_epoch == epochs


def test_the_last_training_keeps_what_the_program_has_left(tmp_path):
    code = (
        "import os\nos.makedirs('artifact/a')\nopen('artifact/a/model', 'w').write('weights')\n"
        "os.symlink('/etc/passwd', 'artifact/link')\nprint('auc=1')"
    )
    result = run(tmp_path, code, replace(TRIAL, role=Role.FINAL, number=-1, node="north_final"))
    assert result.model == sha256_of(tmp_path / PROGRAM_MODEL_FILE)
    unpack(tmp_path / PROGRAM_MODEL_FILE, tmp_path / "out")
    assert {name: path.read_text() for name, path in list_files(tmp_path / "out").items()} == {"a/model": "weights"}


def test_a_last_training_that_leaves_nothing_is_told_of(tmp_path):
    result = run(tmp_path, "print('auc=1')", replace(TRIAL, role=Role.FINAL, number=-1, node="north_final"))
    assert result.status == Status.OK and "left nothing in its folder artifact" in result.reason
    assert result.model == sha256_of(tmp_path / PROGRAM_MODEL_FILE)


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("raise ValueError('too wide')", Status.DIVERGED, "the program ended with exit code 1: ValueError: too wide"),
        ("print('auc=nan')", Status.DIVERGED, "auc is nan"),
        ("import sys; sys.exit(4)", Status.BAD_INPUT, "the program ended with exit code 4"),
        ("import sys; sys.exit(75)", Status.MACHINE, "the program ended with exit code 75"),
        ("import os; os.kill(os.getpid(), 9)", Status.MACHINE, "the program was killed by signal 9"),
        ("import sys; sys.exit(9)", Status.MACHINE, "the program ended with exit code 9"),
        ("print('CUDA error: 2'); import sys; sys.exit(1)", Status.MACHINE, "exit code 1: CUDA error: 2"),
        (
            "print('Error in f() :\\n  no such column\\nCalls: g -> f\\nExecution halted'); import sys; sys.exit(1)",
            Status.DIVERGED,
            "the program ended with exit code 1: Error in f() : no such column",
        ),
        ("print('Execution halted'); import sys; sys.exit(1)", Status.DIVERGED, "exit code 1: Execution halted"),
        ("print('all done')", Status.BAD_INPUT, "ended with 0 and reported no auc; legal: a printed line such as"),
        ("open('result.json', 'w').write('[]')", Status.BAD_INPUT, "the program's result.json: legal: an object"),
        (
            "import os; open(os.environ['REGIONDAG_REPORTS'], 'w').write('[]\\n'); import time; time.sleep(9)",
            Status.BAD_INPUT,
            "the program's report is none: legal: an object",
        ),
    ],
)
def test_how_programs_fail(tmp_path, code, status, reason):
    result = run(tmp_path, code, retry=(9, "CUDA error"))
    assert result.status == status and reason in result.reason


@pytest.mark.parametrize(
    ("command", "status", "reason"),
    [
        (("no-such-program",), Status.MACHINE, "'no-such-program' cannot be started on this machine: No such file"),
        (
            ("./train.py",),
            Status.BAD_INPUT,
            "'./train.py' cannot be run: Permission denied; legal: a program that may be",
        ),
        (("echo", "auc={other}"), Status.BAD_INPUT, "trainer.command: {other} has no value in this trial"),
    ],
)
def test_commands_that_cannot_be_run(tmp_path, command, status, reason):
    result = run(tmp_path, "", command=command)
    assert result.status == status and reason in result.reason


def test_a_program_that_is_behind_is_ended(tmp_path):
    code = "import time\nfor e in range(1, 99):\n    print(f'epoch={e} auc={e / 100}')\n    time.sleep(0.3)"
    result = run(tmp_path, code, replace(TRIAL, rungs=((2, 0.5),)))
    assert result.status == Status.PRUNED and result.reason.endswith("others were better by then")
    assert 2 <= result.epochs < 20
    result = run(
        tmp_path,
        "print('auc=0.4')\nprint('auc=0.3')",
        replace(TRIAL, rungs=((1, 0.5), (2, 0.5)), metric=Metric("auc", True)),
    )
    assert result.status == Status.OK


def test_a_program_that_is_evicted_goes_on_from_its_checkpoint(tmp_path):
    process = start(write_job(tmp_path, SAVES))
    wait_for_epochs(tmp_path, 2)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, result_of(tmp_path).status) == (Exit.EVICTED, Status.EVICTED), (out, err)
    done = len(read_epochs(tmp_path / "log.jsonl"))
    assert (tmp_path / PROGRAM_CHECKPOINT_FILE).stat().st_size
    process = start(tmp_path)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert f"epoch={done + 1} " in out and f"epoch={done} " not in out
    result = result_of(tmp_path)
    assert result.curve == tuple(epoch / 10 for epoch in range(1, 9))
    assert (tmp_path / PROGRAM_CHECKPOINT_FILE).stat().st_size == 0


def test_a_program_that_was_stopped_after_its_last_epoch_has_its_value(tmp_path):
    code = SAVES.replace("range(first, 9)", "range(first, 3)").replace(
        "if told:", "if told or epoch == 2 and first == 1:"
    )
    code = code.replace("sys.exit(0)", "time.sleep(20)\n        sys.exit(0)").replace(
        "print(f", "print(flush=True, end='')\n    print(f"
    )
    process = start(write_job(tmp_path, code.replace("signal.signal", "0 and signal.signal")))
    wait_for_epochs(tmp_path, 2)
    time.sleep(0.5)
    process.terminate()
    assert process.wait(30) == Exit.EVICTED
    process.communicate()
    process = start(tmp_path)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert (result_of(tmp_path).value, result_of(tmp_path).epochs) == (0.2, 2)


def test_epochs_from_0_stay_so_where_a_program_goes_on(tmp_path):
    code = SAVES.replace("epoch={epoch} auc", "epoch={epoch - 1} auc")
    process = start(write_job(tmp_path, code))
    wait_for_epochs(tmp_path, 2)
    process.terminate()
    process.communicate(timeout=30)
    process = start(tmp_path)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert result_of(tmp_path).curve == tuple(epoch / 10 for epoch in range(1, 9))


def test_a_program_that_fails_by_the_machines_fault_goes_on_from_its_checkpoint(tmp_path):
    run(tmp_path, SAVES.replace("if told:", "if epoch == 3:").replace("sys.exit(0)", "sys.exit(75)"))
    unpack(tmp_path / PROGRAM_CHECKPOINT_FILE, tmp_path / "saved")
    assert (tmp_path / "saved" / "epoch").read_text() == "3"


def test_a_program_that_renames_files_all_the_time_is_saved_all_the_same(tmp_path):
    code = (
        "from pathlib import Path\nimport os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "names = [Path('checkpoint', str(n)) for n in range(200)]\nprint('auc=1', flush=True)\nend = time.time() + 4\n"
        "while time.time() < end:\n    for name in names:\n        part = name.with_suffix('.part')\n"
        "        part.write_text('x')\n        part.replace(name)\n"
    )
    process = start(write_job(tmp_path, code), "--checkpoint-every", "1s")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_a_signal_before_the_program_starts_reaches_it_no_less(tmp_path):
    write_job(tmp_path, "import time\nprint('auc=1', flush=True)\ntime.sleep(60)")
    code = (
        "import os, signal, sys\nfrom nnlib.worker import program_job as job\nunpack = job.unpack\n"
        "def late(*words):\n    os.kill(os.getpid(), signal.SIGTERM)\n    unpack(*words)\n"
        "job.unpack = late\nfrom nnlib.cli import main\nsys.exit(main(['train', '--trial', 'trial.json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=20)
    assert done.returncode == Exit.EVICTED, done.stderr


def test_a_program_that_reports_without_end_is_stopped_at_once(tmp_path):
    process = start(write_job(tmp_path, "", command=("sh", "-c", "yes auc=0.1")))
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    process.communicate(timeout=30)
    assert time.monotonic() - begun < 8 and process.returncode == Exit.EVICTED
    assert len(read_epochs(tmp_path / "log.jsonl")) <= 10_000


def test_a_program_that_prints_while_it_ends_is_not_kept_from_it(tmp_path):
    code = (
        "import signal, sys\ntold = []\nsignal.signal(signal.SIGTERM, lambda *_: told.append(1))\n"
        "print('auc=0.5', flush=True)\nwhile not told:\n    signal.pause()\n"
        "for _ in range(50_000): print('x' * 50)\nopen('checkpoint/done', 'w').close()"
    )
    process = start(write_job(tmp_path, code))
    wait_for_epochs(tmp_path, 1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == Exit.EVICTED and (tmp_path / PROGRAM_CHECKPOINT_FILE).stat().st_size


def test_what_counts_steps_is_no_curve(tmp_path):
    result = run(tmp_path, "print('epoch=1000000 auc=0.5')")
    assert (result.value, result.curve) == (0.5, ())


def test_the_best_said_once_more_is_no_epoch(tmp_path):
    result = run(tmp_path, "for e in range(3): print(f'epoch={e} auc={e}')\nprint('best auc=2')")
    assert (result.value, result.curve, result.best_epoch) == (2.0, (0.0, 1.0, 2.0), 3)
    folds = run(tmp_path, "for auc in (0.5, 0.75, 0.625): print(f'auc={auc}')")
    assert (folds.value, folds.best_epoch) == (0.625, 0)


def test_bars_of_progress_are_lines(tmp_path):
    code = "for n in range(400): print(f'{n} auc=0.{n:03}', end='\\r')\nprint('auc=0.399')"
    assert run(tmp_path, code).value == 0.399


def test_reports_without_the_metric_are_passed_over(tmp_path):
    code = "from regiondag.trial import report\nreport(epoch=1, loss=0.5)\nreport(epoch=2, auc=0.5)"
    assert run(tmp_path, code).curve == (0.5, 0.5)
    result = run(tmp_path, "from regiondag.trial import report\nreport(loss=0.5)")
    assert result.status == Status.BAD_INPUT and "reported no auc" in result.reason


def test_a_pipe_in_place_of_reports_holds_nobody(tmp_path):
    result = run(tmp_path, "import os\nos.mkfifo(os.environ['REGIONDAG_REPORTS'])\nprint('auc=0.5')")
    assert result.value == 0.5


def test_a_checkpoint_of_another_trial_is_no_start(tmp_path):
    process = start(write_job(tmp_path, SAVES))
    wait_for_epochs(tmp_path, 2)
    process.terminate()
    process.communicate(timeout=30)
    write_job(tmp_path, SAVES, replace(TRIAL, hyperparameters={"lr": 0.25}))
    process = start(tmp_path)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and "epoch=1 " in out


def test_a_program_is_saved_and_left_after_a_while_once_it_has_saved_itself(tmp_path):
    code = SAVES.replace("time.sleep(0.3)", "time.sleep(4 if epoch == 3 else 0.1)")
    process = start(write_job(tmp_path, code), "--checkpoint-every", "0.05s")
    out, err = process.communicate(timeout=60)
    assert process.returncode == Exit.CHECKPOINTED, (out, err)
    unpack(tmp_path / PROGRAM_CHECKPOINT_FILE, tmp_path / "saved")
    assert (tmp_path / "saved" / "epoch").read_text() == "3"
    process = start(tmp_path)
    assert "epoch=4 " in process.communicate(timeout=60)[0] and process.returncode == 0


def test_nothing_of_a_program_lives_on(tmp_path):
    code = "import subprocess\nprint(subprocess.Popen(['sleep', '600']).pid)\nprint('auc=1')"
    process = start(write_job(tmp_path, code))
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    child = int(out.split()[0])
    end = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_program_that_prints_without_end_fills_no_disk(tmp_path, monkeypatch):
    code = "import sys\nfor _ in range(40): sys.stdout.write('x' * (1 << 20) + '\\n')\nprint('auc=0.5')"
    process = start(write_job(tmp_path, code))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len(out) < 18 << 20 and "no more is kept" in out
    assert result_of(tmp_path).value == 0.5


def test_a_damaged_archive_is_the_machines_fault(tmp_path):
    write_job(tmp_path, "")
    (tmp_path / PROGRAM_FILE).write_bytes(b"PK")
    trial = replace(TRIAL, sha256={PROGRAM_FILE: sha256_of(tmp_path / PROGRAM_FILE)})
    (tmp_path / TRIAL_FILE).write_text(trial_to_json(trial))
    process = start(tmp_path)
    process.communicate(timeout=30)
    result = result_of(tmp_path)
    assert process.returncode == Exit.MACHINE and result.reason.startswith("program.zip: cannot be unpacked: ")


def test_a_program_needs_no_library_of_nnlibs(tmp_path):
    write_job(tmp_path, "print('auc=1')")
    code = (
        "import sys\nfor name in ('numpy', 'scipy', 'netCDF4', 'rich'): sys.modules[name] = None\n"
        "from nnlib.cli import main\nsys.exit(main(['train', '--trial', 'trial.json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr


def test_placeholders():
    assert placeholders_of("{a}{{b}}{c_1}{}{1}") == ["a", "c_1"]
    assert fill_in("{a}{{b}}{}", {"a": False}) == "false{b}{}"
    with pytest.raises(KeyError, match="a"):
        fill_in("{a}", {})
