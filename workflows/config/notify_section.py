"""Reads `notify`, whom to tell what about the runs, and `track`, where their trainings are tracked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nnlib.spec.checks import BOOLEAN, Check, Schema
from regiondag.study.notify import EVENTS, PLACES, SECRET_HOSTS, Notify, check_url
from regiondag.study.track import Track, check_server, may_have_secrets
from regiondag.util.schema import TEXT, Key, Keys, Section, nearest

PLACE_PATTERN = r"(env:[A-Za-z_][A-Za-z0-9_]*|file:\S.*)"
ADDRESS = r"[A-Za-z0-9_+][A-Za-z0-9.!#$%&'*/=?^_`{|}~+-]*(@[A-Za-z0-9.-]+)?"
USER = r"[!-9;-~]+"  # a colon would end it
MOST = 50  # words, headers and addresses


def _command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MOST:
        raise ValueError
    return tuple(map(TEXT.of, value))


def _webhook(value: Any) -> str:
    text = TEXT.of(value)
    if text.startswith(PLACES):
        return read_place(text)
    url = check_url(text)
    if any(host in url for host in SECRET_HOSTS) or "?" in url:
        raise ValueError("such an URL is a secret: put it into a file that only you can read, and name that: file:PATH")
    return url


def read_place(value: Any) -> str:
    """Return where a secret is kept; ValueError for what is no place."""
    text = TEXT.of(value)
    if not re.fullmatch(PLACE_PATTERN, text):
        raise ValueError
    return text


def _headers(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MOST:
        raise ValueError
    for name in value:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9-]{1,60}", name):
            raise ValueError(f"{name!r} is no name of a header")
    return {name: read_place(text) for name, text in value.items()}


def _email(value: Any) -> tuple[str, ...]:
    found = tuple(map(TEXT.of, value if isinstance(value, list) else [value]))
    if not 0 < len(found) <= MOST or not all(re.fullmatch(ADDRESS, one) for one in found):
        raise ValueError
    return found


def _events(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    for name in value:
        if name not in EVENTS:
            raise ValueError(f"{name!r} is none{nearest(str(name), EVENTS)}")
    return tuple(dict.fromkeys(value))


def _user(value: Any) -> str:
    text = TEXT.of(value)
    if not re.fullmatch(USER, text):
        raise ValueError
    return text


def _budget(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
        raise ValueError
    return float(value)


_TEXTS: Schema = {"type": "array", "items": TEXT.schema, "minItems": 1, "maxItems": MOST}
PLACE: Schema = {"type": "string", "pattern": f"^{PLACE_PATTERN}$"}
_ADDRESS: Schema = {"type": "string", "pattern": f"^{ADDRESS}$"}
NOTIFY: Keys = {
    "command": Key(
        (),
        Check(_command, "a list: a program and its arguments", _TEXTS),
        "A program that gets the message as JSON on its standard input; no shell.",
    ),
    "webhook": Key(
        "",
        Check(
            _webhook,
            "https://..., or http:// on this machine; where it is a secret, env:NAME or file:PATH",
            {"type": "string", "pattern": f"^({PLACE_PATTERN}|https?://.*)$"},
        ),
        "An URL that gets the message as JSON by POST.",
    ),
    "headers": Key(
        None,
        Check(
            _headers,
            "names of headers, each with env:NAME or file:PATH",
            {"type": "object", "additionalProperties": PLACE, "maxProperties": MOST},
        ),
        "What the webhook gets beside it; each value is kept in a file of one line, or in a variable.",
    ),
    "email": Key(
        (),
        Check(_email, "an address, or a list of them", {"anyOf": [_ADDRESS, {"type": "array", "items": _ADDRESS}]}),
        "Who gets the message by this machine's own sendmail or mail.",
    ),
    "events": Key(
        EVENTS,
        Check(
            _events,
            f"a list of some of {', '.join(EVENTS)}",
            {"type": "array", "items": {"enum": list(EVENTS)}, "minItems": 1},
        ),
        "What to tell; by default all of it.",
    ),
    "budget": Key(
        None,
        Check(_budget, "a number from 0", {"type": "number", "minimum": 0, "maximum": 1e12}),
        "What a run may cost before it is told, in the currency of the prices.",
    ),
}


def read_notify(section: Section, folder: Path) -> Notify:
    """Read `notify`; paths are relative to `folder`, that of study.yaml."""
    values = {name: section.value(name, NOTIFY) for name in NOTIFY}
    section.finish()
    values["headers"] = values["headers"] or {}
    if values["headers"] and not values["webhook"]:
        section.problems.add(section.where("headers"), "stands without `webhook`")
    if values["command"] and "/" in values["command"][0]:
        program, *arguments = values["command"]
        values["command"] = (_absolute(program, folder), *arguments)
    values["webhook"] = settle_place(values["webhook"], folder)
    values["headers"] = {name: settle_place(place, folder) for name, place in values["headers"].items()}
    return Notify(**values)


TRACK: Keys = {
    "mlflow": Key(
        "",
        Check(
            lambda value: check_server(TEXT.of(value)),
            "the URL of a server of MLflow: http://HOST:5000 or https://HOST",
            {"type": "string", "pattern": "^https?://[^?#@]+$"},
        ),
        "The tracking server that gets a run for each trial and each champion, in an experiment with the study's name.",
    ),
    "token": Key(
        "",
        Check(read_place, "env:NAME or file:PATH", PLACE),
        "Where its token is kept: a file of one line, or a variable.",
    ),
    "username": Key(
        "",
        Check(_user, "a user's name", {"type": "string", "pattern": f"^{USER}$"}),
        "Who asks, where it wants a user and password.",
    ),
    "password": Key(
        "",
        Check(read_place, "env:NAME or file:PATH", PLACE),
        "Where the password is kept: a file of one line, or a variable.",
    ),
    "models": Key(
        False,
        BOOLEAN,
        "Whether champions are sent there, too, and become versions in its registry of models.",
    ),
}


def read_track(section: Section, folder: Path) -> Track | None:
    """Read `track`; None where no server is named. Paths are relative to `folder`, that of study.yaml."""
    values = {name: section.value(name, TRACK) for name in TRACK}
    section.finish()
    for name in ("token", "password"):
        values[name] = settle_place(values[name], folder)
    some = [name for name in ("token", "username", "password") if values[name]]
    if bool(values["username"]) != bool(values["password"]) or len(some) > 2:
        section.problems.add(section.where(some[0]), "legal: `token` alone, or `username` and `password`")
    if not values["mlflow"]:
        if some:
            section.problems.add(section.where(some[0]), "stands without `mlflow`")
        return None
    if some and not may_have_secrets(values["mlflow"]):
        section.problems.add(section.where("mlflow"), f"is http, by which no {some[-1]} goes; legal: https://...")
    return Track(**values)


def settle_place(place: str, folder: Path) -> str:
    """Return the place with the path of a file, which was relative to `folder`, from the root on."""
    return f"file:{_absolute(place.removeprefix('file:'), folder)}" if place.startswith("file:") else place


def _absolute(path: str, folder: Path) -> str:
    try:
        return str((folder / Path(path).expanduser()).absolute())
    except RuntimeError:  # ~nobody
        return str((folder / path).absolute())
