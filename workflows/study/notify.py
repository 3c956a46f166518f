"""Whom to tell what about a study's runs. Secrets are named by where they are kept, never held."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

FINISHED, FAILED, CHAMPION, FROZEN, MISSED, BUDGET = "finished", "failed", "champion", "frozen", "missed", "budget"
EVENTS = (FINISHED, FAILED, CHAMPION, FROZEN, MISSED, BUDGET)
PLACES = ("env:", "file:")  # of secrets
SECRET_HOSTS = ("hooks.slack.com", "discord.com", "discordapp.com", "webhook.office.com")  # whose URLs are secrets


@dataclass(frozen=True, slots=True)
class Notify:
    """The section `notify` of study.yaml; files and programs by absolute paths."""

    command: tuple[str, ...] = ()
    webhook: str = ""  # an URL, env:NAME or file:PATH
    headers: Mapping[str, str] = field(default_factory=dict)  # name -> env:NAME or file:PATH
    email: tuple[str, ...] = ()
    events: tuple[str, ...] = EVENTS
    budget: float | None = None  # of a run, in the currency of the prices

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the ways that there are."""
        return tuple(name for name in ("command", "webhook", "email") if getattr(self, name))


def notify_to_json(notify: Notify) -> str:
    """Return the settings as a run keeps them."""
    return json.dumps(asdict(notify), indent=1, ensure_ascii=False) + "\n"


def notify_from_json(text: str) -> Notify:
    """Read them back; ValueError, KeyError or TypeError for what is none."""
    raw = json.loads(text)
    lists = {name: tuple(map(str, raw[name])) for name in ("command", "email", "events")}
    budget = raw["budget"]
    return Notify(
        **lists,
        webhook=str(raw["webhook"]),
        headers={str(name): str(value) for name, value in raw["headers"].items()},
        budget=None if budget is None else float(budget),
    )


def check_url(url: str) -> str:
    """Return an URL that may be called; ValueError, which does not show it, says what is wrong."""
    parts = urlsplit(url)
    if not parts.hostname or re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ValueError("it is no URL, legal: https://host/path")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it holds a user or password; use `headers`")
    _ = parts.port  # ValueError for one that is none
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise ValueError("it is not https, which only this machine's own addresses need not be")
    return url


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine for certain.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("127.0.0.1.example.org")
    (True, True, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
