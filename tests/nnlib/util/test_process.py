"""The process around a command: output that has left or whose reader has gone, and signals."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from nnlib.training import fit
from nnlib.training.stop import Stop
from nnlib.util.process import (
    catch_signals,
    describe_missing_package,
    install_line,
    run_flushed,
    select_heeded,
    write_at_once,
)

ROOT = Path(__file__).parents[3]
# As a plain shell gives it: with PYTHONUNBUFFERED nothing is left to the interpreter's last flush.
PLAIN = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def shell(command: str, **options) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which $NNLIB and $REGIONDAG are the commands; its exit code is the first program's."""
    python = shlex.quote(sys.executable)
    command = command.replace("$NNLIB", f"{python} -m nnlib").replace("$REGIONDAG", f"{python} -m regiondag")
    line = f"{command}; exit ${{PIPESTATUS[0]}}"
    environment = PLAIN | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment, **options)


@pytest.mark.parametrize("command", ["$REGIONDAG --help", "$NNLIB train -h", "$REGIONDAG bogus", "$NNLIB train"])
def test_a_reader_that_has_gone_is_no_error(command):
    alone = shell(command)
    done = shell(f"{command} | true")
    assert (done.returncode, done.stderr) == (alone.returncode, alone.stderr)
    for nobody in ("2>&1 | true", "2>/dev/full"):
        assert shell(f"{command} {nobody}").returncode == alone.returncode


@pytest.mark.slow
def test_every_command_bears_readers_that_have_gone(tmp_path):
    """Rich would end `status` with 1, and a training that could not tell of its epochs had no model."""
    shell(f"$REGIONDAG init retail {tmp_path}/a && $NNLIB import {tmp_path}/a/purchases.csv.gz --out {tmp_path}/a/data")
    run = shell(f"$REGIONDAG generate {tmp_path}/a/study.yaml --out {tmp_path}/a/runs").stdout.strip()
    train = f"$NNLIB train {tmp_path}/a/network.json {tmp_path}/a/data/malta.train.nc --epochs 2"
    train += " --set hidden=8 --set dropout=0 --set denoising=0"
    for command, code in ((f"$REGIONDAG status {run}", 0), (f"$REGIONDAG report {run}", 1), (train, 0)):
        for nobody in ("| true", "2>&1 | true", ">&-", "2>&-", ">&- 2>&-", "2>/dev/full"):
            model = tmp_path / "model.nc"
            model.unlink(missing_ok=True)
            more = f" --out {model}" if command is train else ""
            done = shell(f"{command}{more} {nobody}")
            assert done.returncode == (code if "|" not in nobody else 0), (command, nobody, done.stderr)
            assert "Traceback" not in done.stderr
            assert not more or model.exists()


def test_what_is_said_does_not_end_up_in_another_stream_or_file(tmp_path):
    done = shell("$NNLIB inspect /nowhere 2>&-")
    assert (done.returncode, done.stdout) == (4, "")
    code = (
        "import os; from nnlib.util.process import guard_streams, write_at_once; guard_streams(); print('data'); "
        f"file = os.open('{tmp_path}/x', os.O_CREAT | os.O_WRONLY); assert file > 2; write_at_once('told')"
    )
    line = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], cwd=ROOT, check=False).returncode == 0
    assert (tmp_path / "x").read_text() == ""


def test_the_commands_own_error_is_told_on_a_full_disk():
    done = shell("$NNLIB inspect /nowhere >/dev/full")
    assert done.returncode == 4 and "/nowhere" in done.stderr


@pytest.mark.parametrize(("program", "code"), [("regiondag", 1), ("nnlib", 75)])
def test_output_that_cannot_be_written_is_told_once(program, code):
    done = shell(f"${program.upper()} --help >/dev/full")
    assert (done.returncode, done.stderr) == (
        code,
        f"{program}: standard output: No space left on device; make room and try again\n",
    )


@pytest.mark.parametrize("program", ["$REGIONDAG status", "$NNLIB inspect"])
def test_a_mistake_keeps_its_exit_code_when_nobody_reads(program):
    told = shell(f"{program} /nowhere/at/all")
    assert told.returncode in (1, 4) and "/nowhere/at/all" in told.stderr
    assert shell(f"{program} /nowhere/at/all 2>&1 | true").returncode == told.returncode
    assert shell(f"{program} /nowhere/at/all >&- 2>&-").returncode == told.returncode


def test_the_reader_of_a_long_output_takes_one_line():
    code = "from nnlib.util.process import run_flushed; run_flushed(lambda: [print(n) for n in range(10**6)])"
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -c '{code}' | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=PLAIN,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_what_a_command_raises_goes_on():
    def fail(error: BaseException) -> int:
        raise error

    for error in (ValueError("x"), SystemExit(2), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            run_flushed(lambda error=error: fail(error))
    with pytest.raises(BrokenPipeError):  # of another stream than the standard output
        run_flushed(lambda: fail(BrokenPipeError()))
    assert run_flushed(lambda: 7) == 7


class Interrupted(io.RawIOBase):
    """A stream in whose first write a signal arrives."""

    def __init__(self, number: signal.Signals) -> None:
        self.number: signal.Signals | None = number
        self.text = b""

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        number, self.number = self.number, None
        if number is not None:
            signal.raise_signal(number)
        self.text += bytes(data)
        return len(data)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_of_a_print_stops_a_training_after_its_batch(number, monkeypatch, capfd):
    raw = Interrupted(number)
    stop = Stop(deferred=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(raw), write_through=True))
        with fit.stop_at(stop, (signal.SIGINT, signal.SIGTERM)):
            print("epoch 3/60", file=sys.stderr, flush=True)
        sys.stderr.detach()
    assert stop.requested and raw.text == b"epoch 3/60\n"
    assert "saving after this batch; once more to leave at once\n" in capfd.readouterr().err


def test_write_at_once_survives_a_closed_stream():
    code = "import os; from nnlib.util.process import write_at_once; os.close(2); write_at_once('x\\udcff')"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    write_at_once("")


def test_signals_that_are_ignored_stay_ignored(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert select_heeded((signal.SIGINT, signal.SIGTERM)) == [signal.SIGTERM]
        seen = []
        with catch_signals((signal.SIGINT, signal.SIGTERM), lambda number, _: seen.append(number)):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_are_as_before_in_the_end():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError), catch_signals([signal.SIGTERM], lambda *_: None):
        assert signal.getsignal(signal.SIGTERM) is not before
        1 / 0  # noqa: B018
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_thread_leaves_signals_to_the_main_one():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with catch_signals([signal.SIGTERM], lambda *_: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ModuleNotFoundError("No module named 'yaml'", name="yaml"), "-m pip install "),
        (ModuleNotFoundError("No module named 'htcondor2._x'", name="htcondor2._x"), "No module named 'htcondor2._x'"),
        (ModuleNotFoundError("No module named 'nnlib.nope'", name="nnlib.nope"), None),
        (ModuleNotFoundError("No module named 'regiondag'", name="regiondag"), None),
        (ImportError("cannot import"), None),
    ],
)
def test_a_missing_package_names_the_line_to_type(error, what):
    said = describe_missing_package(error)
    assert (said is None) if what is None else (said is not None and what in said and sys.executable in said)


def test_what_to_type_names_the_folder_that_was_installed(monkeypatch):
    def noted(*urls: str | None) -> None:
        notes = [json.dumps({"url": url}) if url else None for url in urls]
        found = [SimpleNamespace(read_text=lambda _, note=note: note) for note in notes]
        monkeypatch.setattr("importlib.metadata.distributions", lambda name: found if name == "regiondag" else [])

    python = shlex.quote(sys.executable)
    noted(None, "file:///home/a%20b/regiondag")
    assert install_line("plots") == f"{python} -m pip install '/home/a b/regiondag[plots]'"
    noted("https://example.org/regiondag.whl")
    assert install_line() == f"{python} -m pip install regiondag"
    noted()
    assert install_line("aws").endswith("pip install 'regiondag[aws]'")


@pytest.mark.slow
@pytest.mark.parametrize("lacking", ["yaml", "platformdirs", "jinja2", "numpy", "netCDF4"])
def test_commands_without_a_package_say_what_to_type(lacking, tmp_path):
    """As after `pip install --no-deps`, whatever the module that imports it."""
    hide = f"import sys; sys.modules[{lacking!r}] = None\n"  # its import raises ModuleNotFoundError
    (tmp_path / "sitecustomize.py").write_text(hide)
    study = ROOT / "workflows/examples/retail/study.yaml"
    environment = PLAIN | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    for words in (["regiondag", "--help"], ["regiondag", "validate", str(study)], ["nnlib", "inspect", "x.nc"]):
        done = subprocess.run(
            [sys.executable, "-m", *words], capture_output=True, text=True, env=environment, check=False
        )
        assert "Traceback" not in done.stderr
        if words[1] == "--help":
            assert done.returncode == 0, done.stderr
        elif lacking in done.stderr:
            assert "-m pip install " in done.stderr and done.returncode in (1, 75)


def test_a_full_disk_while_flushing_is_an_oserror(monkeypatch):
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def fileno(self) -> int:
            return spare

    spare = os.open(os.devnull, os.O_WRONLY)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", Full())
            with pytest.raises(OSError, match="standard output") as told:
                run_flushed(lambda: 0)
        assert told.value.errno == errno.ENOSPC
    finally:
        os.close(spare)
