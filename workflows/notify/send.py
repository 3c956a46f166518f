"""Hand a message to a command, a webhook or this machine's mail program; whatever they answer, or do not, is bounded.

Each try has `PATIENCE` seconds, and there are at most `TRIES`. No secret stands in what is said of a failure.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.message import EmailMessage
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import IO, TypeVar, cast
from urllib.parse import urlsplit

from regiondag.errors import RegiondagError
from regiondag.notify.message import Message
from regiondag.study.notify import Notify, check_url
from regiondag.util import secrets
from regiondag.util.text import make_printable

PATIENCE = 10.0  # seconds of a try
TRIES, WAIT = 3, 2.0  # seconds between the first two; twice as long before the third
LONGEST_ANSWER = 4096  # bytes that are read of what comes back
LONGEST_SAID = 200  # characters that are shown of it
SHORTEST_SECRET = 6
AGAIN = (408, 425, 429)  # answers after which it is tried again, as after all from 500 on
MAIL_PROGRAMS = "/usr/sbin:/usr/lib:/usr/bin:/bin"

T = TypeVar("T")


class NotSentError(RegiondagError):
    """A message did not go out; `again` says whether another try may help."""

    def __init__(self, text: str, again: bool = False) -> None:
        super().__init__(text)
        self.again = again


def send(channel: str, settings: Notify, message: Message, wait: Callable[[float], None] = time.sleep) -> str:
    """Send by `command`, `webhook` or `email`; return what came back. NotSentError after the last try."""
    way = {"command": _run_command, "webhook": _post, "email": _mail}[channel]
    for number in range(1, TRIES + 1):
        try:
            return _within(PATIENCE, lambda: way(settings, message))
        except NotSentError as error:
            if number == TRIES or not error.again:
                raise
            wait(WAIT * number)
    raise AssertionError("the last try returns or raises")


def _within(seconds: float, work: Callable[[], T]) -> T:
    """Do something that may hang in places that know no limit (a name server, an answer a byte a second)."""
    done: queue.Queue[tuple[T | None, Exception | None]] = queue.Queue(1)

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:
            done.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        value, error = done.get(timeout=seconds)
    except queue.Empty:
        raise NotSentError(f"no end within {seconds:g} s", again=True) from None
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


# --- webhook -----------------------------------------------------------------------------------------------


def _post(settings: Notify, message: Message) -> str:
    """Send JSON by POST. A redirect is not followed: it would take the secrets elsewhere."""
    url = read_secret(settings.webhook)
    headers = {name: read_secret(place) for name, place in settings.headers.items()}
    try:
        parts = urlsplit(check_url(url))
    except ValueError as error:
        raise NotSentError(f"webhook: {error}") from None
    host = str(parts.hostname)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    link = kind(host, parts.port, timeout=PATIENCE)
    own = {"Content-Type": "application/json", "User-Agent": "regiondag", "Idempotency-Key": message.id}
    try:
        link.request("POST", f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}",
                     message.to_json().encode(), own | headers)  # fmt: skip
        with link.getresponse() as answer:
            said = show_answer(answer.read(LONGEST_ANSWER), *headers.values(), url)
    except (OSError, HTTPException, ValueError) as error:
        raise NotSentError(
            f"{host}: {_hide(type(error).__name__ + ': ' + str(error), *headers.values(), url)}", True
        ) from None
    finally:
        link.close()
    text = f"{host} answers {answer.status}{f': {said}' if said else ''}"
    if 300 <= answer.status < 400:
        raise NotSentError(f"{text}; redirects are not followed: name the address itself")
    if not 200 <= answer.status < 300:
        raise NotSentError(text, again=answer.status >= 500 or answer.status in AGAIN)
    return text


def read_secret(place: str, variables: Mapping[str, str] = os.environ) -> str:
    """Return what is kept in a variable or a file of one line; what is neither is returned as it is."""
    try:
        return secrets.read_secret(place, variables)
    except secrets.NoSecretError as error:
        hint = "; DAGMan's scripts have no variables of yours: keep it in a file" * place.startswith("env:")
        raise NotSentError(f"{error}{hint}") from error


# --- programs ----------------------------------------------------------------------------------------------


def _run_command(settings: Notify, message: Message) -> str:
    return _run(settings.command, message.to_json().encode())


def _mail(settings: Notify, message: Message) -> str:
    """Hand it to sendmail, or to mail where there is no other."""
    where = f"{os.environ.get('PATH', '')}:{MAIL_PROGRAMS}"
    sendmail, plain = shutil.which("sendmail", path=where), shutil.which("mail", path=where)
    if sendmail:
        mail = EmailMessage()
        mail["Subject"], mail["To"] = message.title, ", ".join(settings.email)
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Regiondag-Id"] = message.id
        mail.set_content(f"{message.text}\n{message.id}\n")
        return _run((sendmail, "-i", "--", *settings.email), mail.as_bytes())
    if plain:  # a line that begins with ~ would be a command of some of them
        text = "".join(f"{' ' * line.startswith('~')}{line}\n" for line in (*message.text.splitlines(), message.id))
        return _run((plain, "-s", message.title, *settings.email), text.encode())
    raise NotSentError("there is no sendmail and no mail on this machine: install one, such as msmtp-mta or postfix")


def _run(argv: tuple[str, ...], text: bytes) -> str:
    """Run a program on a text, with all that it starts; return what it says on stderr, shortened."""
    name = Path(argv[0]).name
    try:
        program = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise NotSentError(f"{argv[0]}: {error.strerror or error}") from error
    timer = threading.Timer(0.9 * PATIENCE, _kill, [program.pid])
    timer.start()
    try:
        with suppress(OSError), cast(IO[bytes], program.stdin) as stdin:
            stdin.write(text)
        with cast(IO[bytes], program.stderr) as stderr:
            said = show_answer(stderr.read(LONGEST_ANSWER))
        code = program.wait()
    finally:
        timer.cancel()
    if code == -signal.SIGKILL:
        raise NotSentError(f"{name} had not ended after {0.9 * PATIENCE:g} s and was killed")
    answer = f"{name} ends with {code}{f': {said}' if said else ''}"
    if code:
        raise NotSentError(answer, again=code > 0)
    return answer


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def show_answer(answer: bytes, *secrets: str) -> str:
    """Return the first of what came back, on one line and without secrets."""
    return _hide(" ".join(answer.decode("utf-8", "replace").split()), *secrets)[:LONGEST_SAID]


def _hide(text: str, *secrets: str) -> str:
    """Take secrets out of what others said, before it is shortened or shown."""
    for secret in secrets:
        for word in sorted({secret, *re.split(r"[/?&=\s]", secret)}, key=len, reverse=True):
            text = text.replace(word, "***") if len(word) >= SHORTEST_SECRET else text
    return make_printable(text)
