"""Messages that really go out: to an HTTP server on this machine, a program, and what stands for sendmail."""

from __future__ import annotations

import http.server
import json
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from regiondag.notify import send as module
from regiondag.notify.message import Event, make_message
from regiondag.notify.send import LONGEST_SAID, TRIES, NotSentError, read_secret, send
from regiondag.study.notify import Notify

MESSAGE = make_message("shop", "run-shop-1", "shop: run-shop-1 is finished", [Event("finished", ("is finished",))], 5.0)
SECRET = "T0P-S3CRET-token"  # noqa: S105 (nobody's)


@contextmanager
def server(answer):
    """Serve on loopback; `answer` does so for each request. Give the port and what came."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, dict(self.headers), json.loads(body)))
            with suppress(OSError):
                answer(self)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield listening.server_port, seen
        listening.shutdown()


def reply(status, body=b"", **headers):
    def answer(handler):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def post(port, path="/hook", **more):
    return send("webhook", Notify(webhook=f"http://127.0.0.1:{port}{path}", **more), MESSAGE, wait=lambda _: None)


def test_a_webhook_gets_json_and_the_secrets_that_files_hold(tmp_path):
    (tmp_path / "token").write_text(f"Bearer {SECRET}\n")
    with server(reply(200, b"thanks")) as (port, seen):
        assert post(port, headers={"Authorization": f"file:{tmp_path}/token"}) == "127.0.0.1 answers 200: thanks"
    [(path, headers, body)] = seen
    assert path == "/hook" and headers["Authorization"] == f"Bearer {SECRET}"
    assert headers["Idempotency-Key"] == body["id"] == MESSAGE.id
    assert body["study"] == "shop" and body["run"] == "run-shop-1" and body["events"][0]["event"] == "finished"
    assert body["text"].startswith("shop: run-shop-1 is finished\n")


def test_an_url_may_be_a_secret_as_a_whole(tmp_path, monkeypatch):
    with server(reply(204)) as (port, seen):
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{port}/{SECRET}?a=b")
        assert send("webhook", Notify(webhook="env:HOOK"), MESSAGE) == "127.0.0.1 answers 204"
        assert seen[0][0] == f"/{SECRET}?a=b"
    with server(reply(500, f"no hook {SECRET} here\x1b[2J".encode())) as (port, seen):
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{port}/{SECRET}")
        with pytest.raises(NotSentError) as caught:
            send("webhook", Notify(webhook="env:HOOK"), MESSAGE, wait=lambda _: None)
    assert SECRET not in str(caught.value) and "no hook *** here?[2J" in str(caught.value)


def test_a_fault_that_may_pass_is_tried_again_and_what_is_refused_is_not():
    answers = iter([reply(503), reply(429), reply(200)])
    with server(lambda handler: next(answers)(handler)) as (port, seen):
        assert post(port) == "127.0.0.1 answers 200"
        assert len(seen) == TRIES and len({body["id"] for *_, body in seen}) == 1
    for status, times in ((404, 1), (500, TRIES)):
        with server(reply(status)) as (port, seen), pytest.raises(NotSentError, match=f"answers {status}"):
            post(port)
        assert len(seen) == times


def test_a_redirect_takes_no_secret_elsewhere(tmp_path):
    (tmp_path / "token").write_text(SECRET)
    with server(reply(200)) as (elsewhere, got):
        to = reply(307, Location=f"http://127.0.0.1:{elsewhere}/x")
        with server(to) as (port, _), pytest.raises(NotSentError, match="redirects are not followed"):
            post(port, headers={"Authorization": f"file:{tmp_path}/token"})
        assert got == []


def test_an_answer_without_end_is_read_in_part():
    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65536)

    with server(endless) as (port, _):
        assert post(port) == f"127.0.0.1 answers 200: {'x' * LONGEST_SAID}"


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\nX: ", b""])
def test_an_answer_a_byte_at_a_time_ends_with_the_time_there_is(part, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    gone = threading.Event()

    def drip(handler):
        handler.wfile.write(part)
        while not gone.wait(0.1):
            handler.wfile.write(b"y")

    with server(drip) as (port, seen), pytest.raises(NotSentError, match=r"0\.5 s|Error"):
        try:
            post(port)
        finally:
            gone.set()
    assert len(seen) <= TRIES


def test_nobody_listens():
    with server(reply(200)) as (port, _):
        pass
    with pytest.raises(NotSentError, match=r"127\.0\.0\.1: ConnectionRefusedError"):
        post(port)


@pytest.mark.parametrize(
    "url",
    ["http://example.org/x", "ftp://127.0.0.1/x", "https://user:pw@example.org/", "https:///x", "file:///etc/passwd"],
)
def test_an_url_out_of_a_file_is_held_to_the_same_rules(url, tmp_path):
    (tmp_path / "url").write_text(url)
    with pytest.raises(NotSentError) as caught:
        send("webhook", Notify(webhook=f"file:{tmp_path}/url"), MESSAGE)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "two\nlines", "a\x00b", None])
def test_a_secret_is_one_line(content, tmp_path):
    if content is not None:
        (tmp_path / "secret").write_text(content)
    with pytest.raises(NotSentError, match="secret: "):
        read_secret(f"file:{tmp_path}/secret")


def test_a_variable_that_is_not_set(monkeypatch):
    monkeypatch.delenv("NOTHING", raising=False)
    with pytest.raises(NotSentError, match=r"NOTHING is not set here.*keep it in a file"):
        read_secret("env:NOTHING")


# --- programs ----------------------------------------------------------------------------------------------


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_command_gets_json_on_stdin_and_its_words_as_they_are(tmp_path):
    script = program(tmp_path / "tell", f'cat >"{tmp_path}/got"; printf %s "$1" >"{tmp_path}/word"; echo heard >&2')
    assert send("command", Notify(command=(str(script), "$(id); `x` 'y'")), MESSAGE) == "tell ends with 0: heard"
    assert json.loads((tmp_path / "got").read_text())["id"] == MESSAGE.id
    assert (tmp_path / "word").read_text() == "$(id); `x` 'y'"


def test_a_command_that_fails_is_tried_again(tmp_path):
    script = program(tmp_path / "tell", f'echo x >>"{tmp_path}/tries"; [ $(wc -l <"{tmp_path}/tries") -ge 3 ]')
    assert send("command", Notify(command=(str(script),)), MESSAGE, wait=lambda _: None) == "tell ends with 0"
    with pytest.raises(NotSentError, match="no-such: No such file"):
        send("command", Notify(command=("/no-such",)), MESSAGE)


def test_a_command_that_hangs_or_floods_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    script = program(tmp_path / "tell", f'sleep 60 & echo $! >"{tmp_path}/child"; wait')
    with pytest.raises(NotSentError, match=r"had not ended after 0\.9 s and was killed"):
        send("command", Notify(command=(str(script),)), MESSAGE)
    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    end = time.monotonic() + 10
    while child.exists() and child.joinpath("stat").read_text().split()[2] != "Z" and time.monotonic() < end:
        time.sleep(0.05)
    assert not child.exists() or child.joinpath("stat").read_text().split()[2] == "Z"
    flood = program(tmp_path / "flood", "yes >&2")
    with pytest.raises(NotSentError) as caught:
        send("command", Notify(command=(str(flood),)), MESSAGE, wait=lambda _: None)
    assert len(str(caught.value)) < 2 * LONGEST_SAID


def test_mail_goes_through_sendmail(tmp_path, monkeypatch):
    program(tmp_path / "sendmail", f'printf "%s\\n" "$@" >"{tmp_path}/words"; cat >"{tmp_path}/mail"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert send("email", Notify(email=("ada@example.org", "bob")), MESSAGE) == "sendmail ends with 0"
    assert (tmp_path / "words").read_text().splitlines() == ["-i", "--", "ada@example.org", "bob"]
    mail = (tmp_path / "mail").read_text()
    assert "Subject: shop: run-shop-1 is finished" in mail and "To: ada@example.org, bob" in mail
    assert f"X-Regiondag-Id: {MESSAGE.id}" in mail and "Auto-Submitted: auto-generated" in mail


def test_mail_goes_through_mail_where_there_is_no_sendmail(tmp_path, monkeypatch):
    program(tmp_path / "mail", f'printf "%s\\n" "$@" >"{tmp_path}/words"; /bin/cat >"{tmp_path}/text"')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "MAIL_PROGRAMS", "")
    tilde = make_message("shop", "", "shop: x", [Event("failed", ("~!rm -rf /",))], 5.0)
    assert send("email", Notify(email=("ada",)), tilde) == "mail ends with 0"
    assert (tmp_path / "words").read_text().splitlines() == ["-s", "shop: x", "ada"]
    assert (tmp_path / "text").read_text().startswith(" ~!rm")


def test_no_mail_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "MAIL_PROGRAMS", "")
    with pytest.raises(NotSentError, match="no sendmail and no mail on this machine: install one"):
        send("email", Notify(email=("ada",)), MESSAGE)
