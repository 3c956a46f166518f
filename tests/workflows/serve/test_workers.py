"""Workers are begun again when one dies, and end together."""

import os
import signal
import threading
import time

import pytest

from regiondag.serve import workers
from regiondag.serve.workers import run_workers


def waiting(folder):
    """A worker that notes its process and waits for SIGTERM."""

    def work(number):
        ended = []
        signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
        (folder / f"{number}.{os.getpid()}").touch()
        while not ended:
            time.sleep(0.01)
        return 0

    return work


def when(true, do):
    def run():
        deadline = time.monotonic() + 60
        while not true() and time.monotonic() < deadline:
            time.sleep(0.01)
        do()

    threading.Thread(target=run, daemon=True).start()


def pids(folder, number="*"):
    return [int(path.suffix[1:]) for path in folder.glob(f"{number}.*")]


def test_they_end_when_they_are_told_to(tmp_path):
    when(lambda: len(pids(tmp_path)) == 3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run_workers(3, waiting(tmp_path), print) == 0
    assert {path.stem for path in tmp_path.iterdir()} == {"0", "1", "2"}
    for pid in pids(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_one_that_dies_is_begun_again_with_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "SOON", 0.0)
    said = []
    when(lambda: len(pids(tmp_path)) == 2, lambda: os.kill(pids(tmp_path, 1)[0], signal.SIGKILL))
    when(lambda: len(pids(tmp_path, 1)) == 2, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run_workers(2, waiting(tmp_path), said.append) == 0
    assert said == ["worker 1 ended (-9)"]


def test_those_that_end_as_soon_as_they_begin_are_given_up(capfd):
    said = []

    def fail(number):
        raise ValueError(f"worker {number} cannot begin")

    assert run_workers(2, fail, said.append) == 1
    assert said[-1] == "workers end as soon as they begin: the service gives up"
    assert "cannot begin" in capfd.readouterr().err


def test_ctrl_c_is_told_when_all_have_ended(tmp_path):
    when(lambda: len(pids(tmp_path)) == 2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_workers(2, waiting(tmp_path), print)
