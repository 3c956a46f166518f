"""Attributes set over a socket as HTCondor's starter has it; whatever is at its other end, nothing is raised."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.worker import chirp


@contextmanager
def starter(tmp_path, monkeypatch, answer=lambda _line: b"0\n"):
    """Listen as a starter does, and give the lines that a job sent; `answer` makes an answer of each."""
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with suppress(OSError), link, link.makefile("rwb") as stream:
                    for line in stream:
                        lines.append(line.decode().removesuffix("\n"))
                        stream.write(answer(lines[-1]))
                        stream.flush()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        config = tmp_path / "chirp.config"
        config.write_text(f"127.0.0.1 {server.getsockname()[1]} secret\n")
        monkeypatch.setenv(chirp.CHIRP_CONFIG, str(config))
        yield lines
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_attributes_are_set_one_a_line(tmp_path, monkeypatch):
    with starter(tmp_path, monkeypatch) as lines:
        assert chirp.set_attributes({"ChirpEpoch": "3", "ChirpDoing": '"on all days"'})
        assert lines == [
            "cookie secret",
            "set_job_attr_delayed ChirpEpoch 3",
            r'set_job_attr_delayed ChirpDoing "on\ all\ days"',
        ]


@given(st.text())
def test_an_expression_stays_one_word(text):
    escaped = chirp._escape(text)
    assert not re.search(r"(?<!\\)(?:\\\\)*\s", escaped)
    assert re.sub(r"\\([\\\s])", r"\1", escaped) == text


@pytest.mark.parametrize("answer", [b"-1\n", b"what?\n", b"\n", b"0" * 1000, b"\xff\n"], ids=len)
def test_an_answer_that_is_not_good(answer, tmp_path, monkeypatch):
    with starter(tmp_path, monkeypatch, lambda line: answer if "Epoch" in line else b"0\n") as lines:
        assert not chirp.set_attributes({"ChirpEpoch": "3", "ChirpAt": "4"})
        assert lines[1:] == ["set_job_attr_delayed ChirpEpoch 3"]


def test_nobody_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(chirp, "PATIENCE", 0.1)
    done = threading.Event()

    def wait(_line: str) -> bytes:
        done.wait(30)
        return b""

    with starter(tmp_path, monkeypatch, wait) as lines:
        began = time.monotonic()
        assert not chirp.set_attributes({"ChirpEpoch": "3"})
        done.set()
        assert lines == ["cookie secret"] and time.monotonic() - began < 30  # not the server's patience, but the job's


@pytest.mark.parametrize(
    "text", [None, "", "127.0.0.1", "127.0.0.1 1 secret", "127.0.0.1 x secret", "a b c d", "é 1 x"]
)
def test_no_socket(text, tmp_path, monkeypatch):
    monkeypatch.setenv(chirp.CHIRP_CONFIG, str(tmp_path / "config"))
    if text is not None:
        (tmp_path / "config").write_text(text)
    assert not chirp.set_attributes({"ChirpEpoch": "3"})


def test_a_job_that_htcondor_does_not_run(monkeypatch):
    monkeypatch.delenv(chirp.CHIRP_CONFIG, raising=False)
    assert not chirp.set_attributes({"ChirpEpoch": "3"})
