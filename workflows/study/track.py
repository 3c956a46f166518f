"""Where a study's trainings are tracked: a server of MLflow. Secrets are named by where they are kept, never held."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from regiondag.study.notify import is_loopback


@dataclass(frozen=True, slots=True)
class Track:
    """The section `track` of study.yaml; files by absolute paths."""

    mlflow: str  # the server's URL
    token: str = ""  # env:NAME or file:PATH
    username: str = ""
    password: str = ""  # env:NAME or file:PATH
    models: bool = False  # whether champions go to its registry of models


def track_to_json(track: Track) -> str:
    """Return the settings as a run keeps them."""
    return json.dumps(asdict(track), indent=1, ensure_ascii=False) + "\n"


def track_from_json(text: str) -> Track:
    """Read them back; ValueError, KeyError or TypeError for what is none."""
    raw = json.loads(text)
    mlflow, token, username, password = (str(raw[name]) for name in ("mlflow", "token", "username", "password"))
    return Track(mlflow, token, username, password, bool(raw.get("models", False)))


def check_server(url: str) -> str:
    """Return the URL of a tracking server, without the slash at its end; ValueError says what is wrong with it.

    >>> check_server("https://mlflow.example.org/team/")
    'https://mlflow.example.org/team'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[^!-~]", url):
        raise ValueError("it is no URL of a server")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it holds a user or password; use `token`, or `username` and `password`")
    if parts.query or parts.fragment:
        raise ValueError("it holds a query or a fragment")
    _ = parts.port  # ValueError for one that is none
    return url.rstrip("/")


def may_have_secrets(url: str) -> bool:
    """Return whether secrets may go to a server: by https, or to this machine itself.

    >>> may_have_secrets("http://localhost:5000"), may_have_secrets("http://mlflow.example.org")
    (True, False)
    """
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")
