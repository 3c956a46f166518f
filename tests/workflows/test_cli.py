from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nnlib import cli as nnlib_cli
from regiondag import cli
from regiondag.cli import COMMANDS, main
from regiondag.condor.submit import find_slash_tmp
from regiondag.config.load import load_config
from regiondag.errors import RegiondagError
from regiondag.tuning.propose import propose
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import snapshot

ROOT = Path(__file__).parents[2]


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^    {command}\b", shown, re.MULTILINE) for command in COMMANDS) and "exit codes" in shown


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nope"],
        ["validate"],
        ["status", "x", "--nope"],
        ["gen", "study.yaml"],
        ["status", "x", "--interval", "nan"],
    ],
)
def test_wrong_arguments_exit_2(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2 and "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"), [(RegiondagError("why"), 1), (KeyboardInterrupt(), 130), (ZeroDivisionError("x"), 3)]
)
def test_exit_codes_of_errors(error, code, monkeypatch, capsys):
    def fail(_):
        raise error

    monkeypatch.setattr("regiondag.commands.report.run", fail)
    assert main(["report", "x"]) == code
    err = capsys.readouterr().err
    assert ("Traceback" in err) == (code == 3) and (code != 1 or err == "regiondag: why\n")


def test_mistakes_in_the_study_exit_2_and_write_nothing(tmp_path, capsys):
    study = write_study(tmp_path, STUDY.replace("rounds: 2", "rounds: two").replace("epochs: 2", "epoch: 2"))
    before = snapshot(tmp_path)
    for command in ("validate", "generate"):
        assert main([command, str(study)]) == 2
        err = capsys.readouterr().err
        assert "study.yaml:10: search.rounds: seen 'two'" in err and "did you mean 'epochs'" in err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("damage", [lambda b: b"hello", lambda b: b[: len(b) // 2], lambda b: b""])
def test_damaged_data_is_named_with_its_file(study_file, tmp_path, capsys, damage):
    file = tmp_path / "data" / "uk.valid.nc"
    file.write_bytes(damage(file.read_bytes()))
    assert main(["validate", str(study_file)]) == 2
    err = capsys.readouterr().err
    assert "United Kingdom" in err and "uk.valid.nc" in err


def test_data_that_do_not_fit_the_network_or_each_other(study_file, tmp_path, capsys):
    from tests.workflows import conftest

    network = tmp_path / "network.json"
    good = network.read_text()
    network.write_text(good.replace('"DataSet": "input"', '"DataSet": "inputx"'))
    assert main(["validate", str(study_file)]) == 2
    err = capsys.readouterr().err
    assert "no data set 'inputx'" in err and "it has: input, output" in err
    network.write_text(good.replace('"N": "auto", "DataSet": "output"', '"N": 99, "DataSet": "output"'))
    assert main(["validate", str(study_file)]) == 2
    assert "has 12 units, layer 'Output' of network.json has 99" in capsys.readouterr().err
    network.write_text(good)
    wider = tmp_path / "wider"
    wider.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conftest, "WIDTH", 20)
        conftest.write_region(wider, "uk")
    (wider / "uk.train.nc").replace(tmp_path / "data" / "uk.train.nc")
    assert main(["validate", str(study_file)]) == 2
    assert "all files of a region must come from one import" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["init", "retail", "/proc/x/retail"], ["generate", "{study}", "--out", "/proc/x"],
                                  ["generate", "{study}", "--out", "{study}"]])  # fmt: skip
def test_folders_that_cannot_be_written(study_file, argv, capsys):
    assert main([word.format(study=study_file) for word in argv]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err and ("/proc" in err or "study.yaml" in err)


def test_a_run_in_slash_tmp_is_not_submitted(study_file, capsys):
    from regiondag.condor.submit import submit_dag
    from regiondag.pool.pool import Pool
    from regiondag.run.layout import RunFolder

    with pytest.raises(RegiondagError, match="--out"):
        submit_dag(Pool("x", "installed", (25, 0, 0)), RunFolder(Path("/tmp/run-1")), ["germany"])


def test_a_run_in_slash_tmp_is_told_at_once_with_what_to_type(study_file, capsys):
    assert main(["generate", str(study_file), "--htcondor", "23.9"]) == 0
    out, err = capsys.readouterr()
    run = out.strip()
    said = f"{run} lies in /tmp, where DAGMan refuses to work; type: regiondag generate {study_file} --out ~/runs"
    assert err.splitlines()[-1] == f"regiondag: this run can be looked at, `regiondag submit` refuses it: {said}"
    for command, code in (("doctor", 6), ("submit", 1)):  # whether a pool runs or not
        assert main([command, run, "--pool", "none"]) == code
        [line] = capsys.readouterr().err.splitlines()
        assert f"{run} lies in /tmp" in line and "type: regiondag generate study.yaml --out ~/runs" in line
    for command in (["status", run, "--pool", "none"], ["stats", run], ["explain", run, "--pool", "none"]):
        main(command)
        out = " ".join(capsys.readouterr().out.split())
        assert "lies in /tmp, where DAGMan refuses to work" in out and "regiondag submit" not in out


def test_a_run_that_was_never_submitted_is_not_to_be_submitted_again(study_file, capsys):
    main(["generate", str(study_file), "--htcondor", "23.9"])
    assert main(["report", capsys.readouterr().out.strip()]) == 1
    assert "Germany: none of its jobs has run; submit the DAG\n" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["report RUN", "study export RUN", "pool up"])
def test_what_a_command_does_not_know_is_refused_with_its_own_usage(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), "--bogus", "x y"])
    err, name = capsys.readouterr().err, command.removesuffix(" RUN")
    assert caught.value.code == 2 and err.startswith(f"usage: regiondag {name} [-h]")
    assert f"regiondag {name}: error: unrecognized arguments: --bogus" in err


def test_init_in_slash_tmp_says_how_to_run_elsewhere(tmp_path, run_area, capsys):
    assert main(["init", "retail", str(tmp_path / "my study")]) == 0
    err = capsys.readouterr().err
    assert f"regiondag run '{tmp_path}/my study' --out ~/runs " in err
    assert main(["init", "retail", str(run_area / "retail")]) == 0
    assert "--out" not in capsys.readouterr().err.replace("--out data", "")
    assert main(["init", "retail", str(run_area / "my study")]) == 0
    assert f"regiondag run '{run_area}/my study' --out ~/runs " in capsys.readouterr().err


def test_dagman_looks_at_letters_and_through_links(tmp_path, run_area):
    (run_area / "link").symlink_to(tmp_path)
    assert f"{tmp_path}/runs lies in /tmp" in find_slash_tmp(run_area / "link" / "runs")
    assert "/tmpdata/runs begins with /tmp" in find_slash_tmp(Path("/tmpdata/runs"))
    assert find_slash_tmp(run_area) == find_slash_tmp(Path("/var/tmp/runs")) == ""


@pytest.mark.parametrize(
    ("name", "seen"),
    [("a b", "a space"), ("it's", '"\'"'), ('"', "'\"'"), ("$HOME", "'$'"), ("50%", "'%'"), ("a,b", "','")],
)
def test_a_folder_that_a_dag_cannot_name_is_refused_in_one_line(run_area, capsys, name, seen):
    (run_area / name).mkdir()
    study = write_study(run_area / name)
    assert main(["generate", str(study)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"it holds {seen}; legal: letters, digits and . _ / : @ + = ~ -; give another folder: --out ~/runs" in line
    assert not (run_area / name / "runs").exists()
    assert main(["update", str(study), "--cron", "30 3 * * *", "--out", str(run_area / "runs")]) == 1
    assert "it lies beside study.yaml: move the study into a folder with such a path" in capsys.readouterr().err
    assert main(["generate", str(study), "--out", str(run_area / "runs"), "--quiet"]) == 0


def test_a_python_that_a_dag_cannot_name_is_started_by_the_run(study_file, tmp_path, monkeypatch, capsys):
    """As that of an environment in a folder with spaces."""
    python = tmp_path / "it's a b" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    assert main(["generate", str(study_file), "--quiet"]) == 0
    run = Path(capsys.readouterr().out.strip())
    dag = (run / "study.dag").read_text()
    assert f"{run}/pre.sh {run}/python " in dag and "a b" not in dag
    told = subprocess.run(
        [run / "python", "-c", "import sys; print(sys.argv[1])", "c  d"], capture_output=True, text=True
    )
    assert told.stdout == "c  d\n"
    assert "python" in json.loads((run / "manifest.json").read_text())["sha256"]


@pytest.mark.parametrize("command", ["status", "report", "doctor", "submit", "verify"])
def test_what_is_no_run_directory_is_told_with_the_nearest(study_file, tmp_path, capsys, command):
    assert main([command, str(tmp_path / "nowhere")]) == 1
    assert f"{tmp_path}/nowhere: No such file or directory; check the name\n" in capsys.readouterr().err
    assert main([command, str(tmp_path / "data")]) == 1
    assert "has no manifest.json; `regiondag generate study.yaml` makes one" in capsys.readouterr().err
    assert main([command, str(tmp_path)]) == 1
    assert f"the study 'tiny' has no run in {tmp_path}/runs yet; first: regiondag generate\n" in capsys.readouterr().err
    assert main(["generate", str(study_file), "--quiet"]) == 0
    run = capsys.readouterr().out.strip()
    assert main([command, str(tmp_path / "runs")]) == 1
    assert f"has no manifest.json; the newest one near it: {run}\n" in capsys.readouterr().err
    Path(run, "manifest.json").write_text("{")
    assert main([command, run]) == 1
    assert f"{run}/manifest.json: damaged, not JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("[]", "it is damaged, or was made by another one"),
        ("{}", "it lacks 'study', or was made by another one"),
        (None, "region.json: cannot be read: No such file or directory"),
    ],
)
def test_a_damaged_region_is_told_without_words_of_pythons(study_file, capsys, text, seen):
    assert main(["generate", str(study_file), "--quiet"]) == 0
    run = capsys.readouterr().out.strip()
    file = Path(run, "regions", "germany", "region.json")
    file.unlink() if text is None else file.write_text(text)
    assert main(["study", "show", run]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert seen in line and line.endswith("; restore it from a copy, or generate the run anew") and "Error" not in line


def test_champions_of_no_run_are_refused(study_file, tmp_path, capsys):
    assert main(["generate", str(study_file), "--champions", str(tmp_path / "rums")]) == 1
    assert f"{tmp_path}/rums: No such file or directory; check the name\n" in capsys.readouterr().err
    assert main(["generate", str(study_file), "--champions", str(tmp_path)]) == 1
    assert "legal for --champions: a finished run of it, or none" in capsys.readouterr().err


def test_an_example_that_fills_the_disk_is_told_with_the_file_that_was_written(tmp_path, monkeypatch, capsys):
    def full(source, copy):
        raise OSError(28, "No space left on device", str(source), None, str(copy))

    monkeypatch.setattr("shutil.copyfile", full)
    assert main(["init", "retail", str(tmp_path / "retail")]) == 1
    assert capsys.readouterr().err == (
        f"regiondag: {tmp_path}/retail/DATA.md: No space left on device; make room and try again\n"
    )


def test_a_study_that_is_a_folder_is_told_with_the_file_in_it(study_file, tmp_path, capsys):
    assert main(["validate", str(tmp_path)]) == 2
    assert f"{tmp_path}: is a folder, legal: a file that holds a study; give the file in it: {study_file}" in (
        capsys.readouterr().err
    )
    assert main(["validate", str(tmp_path / "data" / "uk.train.nc")]) == 2
    assert "byte 0 is not UTF-8; it must hold a study, as UTF-8 text; `regiondag init retail DIR`" in (
        capsys.readouterr().err
    )


def test_a_missing_network_is_told_with_the_files_beside_it(tmp_path, capsys):
    study = write_study(tmp_path, STUDY.replace("network.json", "netwrk.json"))
    assert main(["validate", str(study)]) == 2
    there = (
        f"{tmp_path}/netwrk.json': No such file or directory; there is: {tmp_path}/network.json; legal: DSSTNE's JSON"
    )
    assert f"study.yaml:5: network: seen '{there}\n" in capsys.readouterr().err
    (tmp_path / "network.json").write_text("")
    assert main(["validate", str(write_study(tmp_path / "b").with_name("study.yaml"))]) == 0
    (tmp_path / "b" / "network.json").write_text("")
    assert main(["validate", str(tmp_path / "b" / "study.yaml")]) == 2
    assert f"network: {tmp_path}/b/network.json: empty, legal: a network as DSSTNE's JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["status", "x", "--interval", "0"], "'0' is not legal, legal: a number from 0.5 to 3600"),
        (["trial", "priority", "x", "y", "1", "--priority", "high"], "'high' is not legal, legal: a whole number"),
        (["pool", "logs", "-n", "x"], "'x' is not legal, legal: a whole number"),
    ],
)
def test_wrong_numbers_are_told_with_what_is_legal(argv, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert words in capsys.readouterr().err


def test_status_without_a_pool_says_what_the_logs_say(study_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path))  # where no pool is known
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda name=None: None)
    assert main(["generate", "--quiet", str(study_file), "--htcondor", "23.9"]) == 0
    captured = capsys.readouterr()
    run = captured.out.strip()
    assert captured.err == ""
    Path(run, "study.dag.dagman.log").write_text(ENDED)
    assert main(["status", run]) == 0
    captured = capsys.readouterr()
    assert "ended with exit code 1" in captured.out and "is not known: no pool called 'default' runs" in captured.err
    Path(run, "study.dag.dagman.log").write_text(ENDED.split("...\n")[0] + "...\n")
    assert main(["status", run, "--watch"]) == 5


ENDED = """\
000 (001.000.000) 2026-11-01 10:00:00 Job submitted from host: <127.0.0.1:1>
...
005 (001.000.000) 2026-11-01 10:05:00 Job terminated.
\t(1) Normal termination (return value 1)
...
"""


def test_validate_says_what_a_study_amounts_to(study_file, capsys):
    assert main(["validate", str(study_file)]) == 0
    assert "2 regions, 8 trials, 8 data files" in capsys.readouterr().out


def test_the_example_is_a_whole_study(tmp_path, capsys):
    folder = tmp_path / "retail"
    assert main(["init", "retail", str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "study.yaml")
    assert (folder / "DATA.md").exists() and (folder / "network.json").exists()
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_000_000
    assert main(["init", "retail", str(folder)]) == 2
    assert main(["init", "nope", str(tmp_path / "x")]) == 2
    assert "there is: command, images, lightgbm, pytorch, r, retail, sklearn" in capsys.readouterr().err


def test_the_example_of_images_is_whole_once_its_pictures_are_drawn(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "signs"
    assert main(["init", "images", str(folder)]) == 0
    steps = [shlex.split(line) for line in capsys.readouterr().err.splitlines()[1:]]
    monkeypatch.chdir(folder)
    assert steps[0] == ["cd", str(folder)]
    subprocess.run([sys.executable, *steps[1][1:], "--scale", "0.1"], check=True, capture_output=True)
    assert nnlib_cli.main(steps[2][1:]) == 0
    assert main(["validate", "study.yaml"]) == 0
    assert "6 regions, 22 trials, 20 data files" in capsys.readouterr().out
    # Without a network of all a logistic regression competes in every city: it is one of the first two trials.
    text = Path("study.yaml").read_text().replace("reads: Largest", "reads: {choice: [Largest, Picture]}")
    kept = [line for line in text.splitlines() if not line.startswith(("init:", "pooled:", "  train:", "  search:"))]
    Path("alone.yaml").write_text("\n".join(kept))
    for region in load_config(Path("alone.yaml")).regions:
        for seed in range(20):
            first = propose(region.search, [], [], region.search.sizes[0], seed)
            assert {point["reads"] for point in first} == {"Largest", "Picture"}, (region.name, seed)


def test_generate_prints_the_run_directory_alone_on_stdout(study_file, capsys):
    assert main(["generate", str(study_file), "--htcondor", "23.9"]) == 0
    run = Path(capsys.readouterr().out.strip())
    assert json.loads((run / "manifest.json").read_text())["versions"]["htcondor"] == "23.9.0"


@pytest.mark.parametrize(("version", "word"), [("x", "not an HTCondor version"), ("10.0", "older than 23.9")])
def test_versions_that_cannot_be(study_file, capsys, version, word):
    assert main(["generate", str(study_file), "--htcondor", version]) == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "status", "doctor", "submit"])
def test_a_folder_that_is_no_run(tmp_path, capsys, command):
    assert main([command, str(tmp_path)]) == 1
    assert "is not a run directory" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "status", "doctor", "submit"])
def test_somebody_elses_run(tmp_path, capsys, monkeypatch, command):
    """Made up, for root may read everything."""

    read = Path.read_text

    def denied(path: Path, **options):
        if path.is_relative_to(tmp_path):
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, **options)

    monkeypatch.setattr(Path, "read_text", denied)
    assert main([command, str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "its owner's alone" in said
    assert f"chmod -R go+rX {tmp_path}" in said


def test_a_run_that_was_moved_is_not_submitted(study_file, tmp_path, capsys):
    assert main(["generate", str(study_file)]) == 0
    run = Path(capsys.readouterr().out.strip())
    moved = run.rename(run.with_name("moved"))
    assert main(["submit", str(moved)]) == 1
    assert "was made as" in capsys.readouterr().err


def test_report_of_a_run_that_has_not_begun(study_file, capsys):
    assert main(["generate", str(study_file)]) == 0
    run = capsys.readouterr().out.strip()
    assert main(["report", run]) == 1
    assert "unfinished" in capsys.readouterr().out
    assert main(["report", run, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["finished"] is False


def test_a_closed_pipe_is_no_error(study_file):
    """Also where Python keeps what it prints until it ends, as it does unless PYTHONUNBUFFERED is set."""
    command = f"{shlex.quote(sys.executable)} -m regiondag validate {shlex.quote(str(study_file))} | true"
    env = os.environ | {"PYTHONUNBUFFERED": ""}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert done.stderr == ""


def test_version(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert re.fullmatch(r"regiondag \d+\.\d+\.\d+\n", capsys.readouterr().out)
