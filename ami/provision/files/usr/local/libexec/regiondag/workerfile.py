"""What /etc/regiondag/worker.json says, checked; and the HTCondor settings that follow from it. Pure.

Everything here may come from user data or the metadata service, so nothing is written that could be more than the
one value it stands for: no line breaks, no continued lines, and `$(` only in `settings`, which are HTCondor's by
definition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PORT = 9618
IDLE_MINUTES = 15
JOIN_MINUTES = 15
LEASE_MINUTES = 60
LONGEST_MINUTES = 7 * 24 * 60

KEYS = ("manager", "domain", "token", "region", "fleet", "idle_minutes", "join_minutes", "lease_minutes", "settings")
TOKEN_KINDS = ("ssm", "secret", "text", "file")
SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
KEYWORDS = ("use", "include", "if", "elif", "else", "endif", "error", "warning")

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
HOST = re.compile(rf"({NAME.pattern}|\[[0-9A-Fa-f:.]+\])(?::([0-9]{{1,5}}))?")
REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+")
ATTRIBUTE_VALUE = re.compile(r"[A-Za-z0-9._:/ -]{1,128}")
TOKEN_LINE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class WorkerFileError(Exception):
    """worker.json is wrong; the message has a line for each mistake."""


@dataclass(frozen=True)
class TokenSource:
    """Where the pool's token is: an SSM parameter, a secret, a file here, or (tests) the token itself."""

    kind: str  # one of TOKEN_KINDS
    value: str = field(repr=False)  # a secret if kind is "text"

    def __str__(self) -> str:
        return {
            "ssm": f"SSM parameter {self.value}",
            "secret": f"secret {self.value}",
            "file": f"file {self.value}",
            "text": "token in worker.json",
        }[self.kind]


@dataclass(frozen=True)
class WorkerFile:
    """worker.json, with every default filled in."""

    host: str
    port: int
    token: TokenSource
    domain: str = ""
    region: str = ""  # empty: the instance's own
    fleet: str = ""
    idle_minutes: float = IDLE_MINUTES  # 0: never power off
    join_minutes: float = JOIN_MINUTES  # 0: try for ever
    lease_minutes: float = 0  # 0: none
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def manager(self) -> str:
        """The collector's host:port."""
        return f"{self.host}:{self.port}"


def parse(text: str) -> WorkerFile:
    """Return what worker.json says, or raise WorkerFileError with all its mistakes."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise WorkerFileError(f"it is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise WorkerFileError(f"it holds {_shown(given)}; it must be one JSON object with the keys {', '.join(KEYS)}")
    problems = [f"{_shown(key)} is no key; the keys are {', '.join(KEYS)}" for key in given if key not in KEYS]
    host, port = _manager(given.get("manager"), problems)
    parsed = WorkerFile(
        host=host,
        port=port,
        token=_token(given.get("token"), problems),
        domain=_text(given, "domain", NAME, "a domain such as pool.example", problems),
        region=_text(given, "region", REGION, "an AWS region such as eu-central-1", problems),
        fleet=_text(given, "fleet", NAME, "letters, digits, dots, dashes and underscores", problems),
        idle_minutes=_minutes(given, "idle_minutes", IDLE_MINUTES, "0 to stay on for ever", problems),
        join_minutes=_minutes(given, "join_minutes", JOIN_MINUTES, "0 to try for ever", problems),
        # A machine that nobody pays for by the hour is nobody's to end.
        lease_minutes=_minutes(given, "lease_minutes", LEASE_MINUTES if given.get("fleet") else 0, "0: none", problems),
        settings=_settings(given.get("settings", {}), problems),
    )
    if problems:
        raise WorkerFileError("\n".join(problems))
    return parsed


def pool_config(worker: WorkerFile, attributes: Mapping[str, str], shutdown: str) -> str:
    """Return 90-regiondag-pool.config: the pool, when to power off by program `shutdown`, and what slots advertise."""
    lines = [
        "# Written by regiondag-join at every boot, from /etc/regiondag/worker.json; what is changed here is lost.",
        f"CONDOR_HOST = {worker.host}",
        f"COLLECTOR_HOST = {worker.manager}",
    ]
    if worker.domain:
        lines += [f"UID_DOMAIN = {worker.domain}", f"TRUST_DOMAIN = {worker.domain}"]
    if worker.idle_minutes:
        lines += [
            f"STARTD_NOCLAIM_SHUTDOWN = {max(1, round(60 * worker.idle_minutes))}",
            f"DEFAULT_MASTER_SHUTDOWN_SCRIPT = {shutdown}",
        ]
    if worker.fleet:
        attributes = {**attributes, "RegiondagFleet": worker.fleet}
    known = {name: value for name, value in attributes.items() if ATTRIBUTE_VALUE.fullmatch(value)}
    lines += [f'{name} = "{value}"' for name, value in known.items()]
    if known:
        lines.append(f"STARTD_ATTRS = $(STARTD_ATTRS) {' '.join(known)}")
    lines += [f"{name} = {value}" for name, value in worker.settings.items()]
    return "\n".join(lines) + "\n"


def token_lines(text: str) -> list[str]:
    """Return the tokens in `text`, one a line, without comments; empty if anything else stands there."""
    lines = [line.strip() for line in text.splitlines()]
    tokens = [line for line in lines if line and not line.startswith("#")]
    return tokens if all(TOKEN_LINE.fullmatch(token) for token in tokens) else []


def _manager(value: Any, problems: list[str]) -> tuple[str, int]:
    found = HOST.fullmatch(value) if isinstance(value, str) else None
    port = int(found[3] or PORT) if found else 0
    if found is None or not 0 < port < 65536:
        seen = "is missing" if value is None else f"is {_shown(value)}"
        problems.append(f"manager {seen}; give the address of the pool's manager, such as 10.0.0.5 or 10.0.0.5:{PORT}")
        return "", 0
    return found[1], port


def _token(value: Any, problems: list[str]) -> TokenSource:
    legal = '{"ssm": "/parameter"}, {"secret": "name"}, {"file": "/path"} or, in tests, {"text": "eyJ..."}'
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in TOKEN_KINDS:
        # Never its value: that may be the token.
        seen = "is missing" if value is None else "is something else"
        problems.append(f"token {seen}; it says where the pool's token is: {legal}")
        return TokenSource("text", "")
    ((kind, where),) = value.items()
    if not isinstance(where, str) or not where.strip() or (kind != "text" and not where.isprintable()):
        problems.append(f"token.{kind} must be a text that is not empty and has no line breaks; legal: {legal}")
    elif kind == "text" and not token_lines(where):
        problems.append("token.text is no HTCondor token (three parts with dots between); see: condor_token_create")
    elif kind == "file" and not where.startswith("/"):
        problems.append(f"token.file is {_shown(where)}; give a path from the root, such as /etc/condor/tokens.d/pool")
    return TokenSource(kind, where if isinstance(where, str) else "")


def _text(given: Mapping[str, Any], key: str, legal: re.Pattern[str], words: str, problems: list[str]) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or not legal.fullmatch(value):
        problems.append(f"{key} is {_shown(value)}; it must be {words}")
        return ""
    return value


def _minutes(given: Mapping[str, Any], key: str, default: float, zero: str, problems: list[str]) -> float:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LONGEST_MINUTES:
        problems.append(f"{key} is {_shown(value)}; it must be a number of minutes up to {LONGEST_MINUTES}, {zero}")
        return default
    return value


def _settings(value: Any, problems: list[str]) -> dict[str, str]:
    if not isinstance(value, dict):
        problems.append(f'settings is {_shown(value)}; it must be HTCondor settings: {{"NAME": "value"}}')
        return {}
    settings = {}
    for name, setting in value.items():
        text = str(setting) if isinstance(setting, (str, bool, int, float)) else ""
        if not SETTING.fullmatch(name) or name.lower() in KEYWORDS:
            problems.append(f"settings: {_shown(name)} is no name of an HTCondor setting")
        elif not isinstance(setting, (str, bool, int, float)):
            problems.append(f"settings.{name} is {_shown(setting)}; it must be a text, a number, true or false")
        elif not text.isprintable() or text.rstrip().endswith("\\"):
            problems.append(f"settings.{name} is {_shown(setting)}; it must be one line that does not end with \\")
        else:
            settings[name] = text
    return settings


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
