"""`regiondag serve STUDY`: recommendations over HTTP."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnlib.util.terminal import tell
from regiondag.commands._verbs import number, read_checked, warn

HELP = "answer requests for recommendations over HTTP"
DESCRIPTION = """Serves the champions that are in office of all regions, as JSON described by
GET /openapi.json. What is promoted or rolled back is loaded beside the old one
and takes its place without a request failing; one that cannot be loaded leaves
the old one serving. SIGTERM ends it when the requests in flight are answered.
The address goes to stdout once it can be asked, a line for each request to
stderr unless --quiet.

It listens on this machine alone. For others give --host and --token-file, and
put a proxy with TLS before it."""
EPILOG = """examples:
  regiondag serve shop
  curl http://127.0.0.1:8321/v1/regions/germany/customers/12583/recommendations
  regiondag serve shop --host 0.0.0.0 --token-file tokens --workers 4"""

PORT = 8321
EXTRA = "serve"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("studies", type=Path, nargs="+", metavar="STUDY", help="a study's folder, or its study.yaml")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="where runs lie (default: runs/ beside study.yaml)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=number(int, 0, 65535), default=PORT, help="0: any that is free (default: 8321)")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="tokens that may ask, one a line; only its owner may read it"
    )
    parser.add_argument(
        "--memory", type=_size, metavar="SIZE", help="for champions, such as 4GB (default: half of what is free)"
    )
    parser.add_argument(
        "--workers", type=number(int, 1, 64), default=1, metavar="N", help="processes that answer (default: 1)"
    )
    parser.add_argument(
        "--requests",
        type=number(int, 1, 10_000),
        default=128,
        metavar="N",
        help="at a time, for each worker (default: 128)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to end."""
    from nnlib.util.memory import available_bytes
    from nnlib.util.process import install_line
    from nnlib.util.terminal import is_quiet
    from regiondag.errors import RegiondagError, UsageError
    from regiondag.run.study_folder import find_study
    from regiondag.serve.guard import Rules
    from regiondag.serve.run import Settings, serve
    from regiondag.serve.store import Place
    from regiondag.serve.tokens import read_tokens

    found = [find_study(path, arguments.runs) for path in arguments.studies]
    places = tuple(dict.fromkeys(Place(one.runs.resolve(), one.name) for one in found))
    names = [place.study for place in places]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"several of these studies are called {twice!r}; legal: studies of different names")
    tokens = read_tokens(arguments.token_file) if arguments.token_file else ()
    memory = (arguments.memory or available_bytes() // 2) // arguments.workers
    rules = Rules(tokens, arguments.requests, arguments.host)
    settings = Settings(places, arguments.host, arguments.port, rules, memory, arguments.workers, not is_quiet())
    try:
        return serve(settings, _announce, warn)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in ("starlette", "uvicorn", "httptools"):
            raise RegiondagError(f"{error}; to install what serving needs: {install_line(EXTRA)}") from None
        raise


def _announce(address: str) -> None:
    print(address, flush=True)
    tell("Ctrl-C ends it")


def _size(text: str) -> int:
    from regiondag.util.schema import size

    return read_checked(text, size(1 << 20))
