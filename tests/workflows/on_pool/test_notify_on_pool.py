"""People are told how runs end, by DAGMan's last node on a real HTCondor pool; telling never fails a run."""

from __future__ import annotations

import json
import shlex

import pytest

from regiondag.cli import main
from regiondag.run.layout import RunFolder
from tests.workflows.conftest import STUDY
from tests.workflows.notify.test_send import SECRET, program, reply, server
from tests.workflows.on_pool.test_study import finish, generate, submit

pytestmark = pytest.mark.condor

SHORT = STUDY.replace("rounds: 2\n  parallel: 2", "rounds: 1\n  parallel: 1")


def told_by(run: RunFolder) -> str:
    return "".join(line for line in run.path.joinpath("manager.log").read_text().splitlines(True) if "notify: " in line)


def test_a_finished_run_is_told_by_all_ways(pool, run_area, capsys):
    script = program(run_area / "tell", f"cat >{shlex.quote(str(run_area / 'got'))}")
    (run_area / "token").write_text(f"Bearer {SECRET}")
    with server(reply(200, b"thanks")) as (port, seen):
        (run_area / "url").write_text(f"http://127.0.0.1:{port}/{SECRET}")
        more = f"notify: {{command: [{script}], webhook: 'file:url', headers: {{Authorization: 'file:token'}}, "
        more += "email: ada}\n"
        run = generate(run_area, capsys, SHORT + more)
        submit(run)
        status = finish(pool, run)
    assert status.exit_code == 0  # although there is no mail program in the pool's root folder
    message = json.loads((run_area / "got").read_text())
    assert [event["event"] for event in message["events"]] == ["finished", "champion"]
    assert message["run"] == run.path.name and set(message["events"][1]["regions"]) == {"United Kingdom", "Germany"}
    [(path, headers, body)] = seen
    assert path == f"/{SECRET}" and headers["Authorization"] == f"Bearer {SECRET}" and body["id"] == message["id"]
    said = told_by(run)
    assert "webhook: 127.0.0.1 answers 200: thanks" in said and "email: NOT sent: there is no sendmail" in said
    for file in run.path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    assert main(["notify", str(run_area), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["last"]["failed"]) == 1


def test_a_run_that_failed_is_told_with_its_regions(pool, run_area, capsys):
    script = program(
        run_area / "tell", f"cat >>{shlex.quote(str(run_area / 'got'))}; echo >>{shlex.quote(str(run_area / 'got'))}"
    )
    run = generate(run_area, capsys, f"{SHORT}notify: {{command: [{script}]}}\n")
    job = run.path / "train.sh"
    job.write_text(job.read_text().replace("#!/bin/sh\n", "#!/bin/sh\nexit 4\n", 1))
    submit(run)
    assert finish(pool, run).exit_code == 1
    [failed] = [json.loads(line) for line in (run_area / "got").read_text().splitlines()]
    assert failed["events"][0]["event"] == "failed" and set(failed["events"][0]["regions"]) == {
        "United Kingdom",
        "Germany",
    }
    assert "failed: 2 regions" in failed["title"]
    assert "notify: command: tell ends with 0" in told_by(run)
