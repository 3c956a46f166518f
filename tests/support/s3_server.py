"""S3 of this machine: moto's server behind TLS, which gives objects to those alone who sign for them.

moto itself looks at no signature, so each is calculated anew here, by botocore, and compared.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from urllib.parse import parse_qsl, quote

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from tests.support.own_tls import OwnTls

_ONE_AT_A_TIME = threading.Lock()  # signs: botocore's clock is set for each
STAMP = "%Y%m%dT%H%M%SZ"


@dataclass(slots=True)
class S3Server:
    """A running one, and what it was asked."""

    key: str
    secret: str
    host: str = ""
    asked: list[tuple[str, str, int]] = field(default_factory=list)  # method, path and the answer's status


class _Silent(WSGIRequestHandler):
    def log(self, *_words: object, **_more: object) -> None:
        pass


@contextmanager
def serving_s3(tls: OwnTls, objects: Mapping[str, bytes]) -> Iterator[S3Server]:
    """Serve objects, named `bucket/key`, and give the server that has them."""
    found = S3Server("AKIAOWNTESTKEY0000", "a/secret+of=tests-which-no-log-may-hold")
    moto = DomainDispatcherApplication(create_backend_app)
    server = make_server(
        "127.0.0.1", 0, _signed(found, moto), threaded=True, request_handler=_Silent, ssl_context=tls.of_server()
    )
    found.host = f"127.0.0.1:{server.server_port}"
    _put(moto, objects)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _put(moto: DomainDispatcherApplication, objects: Mapping[str, bytes]) -> None:
    from werkzeug.test import Client

    client = Client(moto)
    for bucket in {name.partition("/")[0] for name in objects}:
        assert client.put(f"/{bucket}", base_url="http://127.0.0.1").status_code == 200
    for name, content in objects.items():
        assert client.put(f"/{quote(name)}", base_url="http://127.0.0.1", data=content).status_code == 200


def _signed(server: S3Server, moto: Any) -> Any:
    def answer(request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        def noting(status: str, *more: Any) -> Any:
            server.asked.append((request["REQUEST_METHOD"], request["PATH_INFO"], int(status[:3])))
            return start(status, *more)

        if not _is_signed(server, request):
            noting("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SignatureDoesNotMatch</Code></Error>"]
        answered: Iterable[bytes] = moto(request, noting)
        return answered

    return answer


def _is_signed(server: S3Server, request: WSGIEnvironment) -> bool:
    """Whether a request's query has the signature that botocore makes for the same request and time."""
    said = dict(parse_qsl(request["QUERY_STRING"]))
    try:
        when = datetime.strptime(said["X-Amz-Date"], STAMP).replace(tzinfo=UTC)
        seconds, region = int(said["X-Amz-Expires"]), said["X-Amz-Credential"].split("/")[2]
    except (IndexError, KeyError, ValueError):
        return False
    now = datetime.now(UTC)
    if not when - timedelta(minutes=5) <= now <= when + timedelta(seconds=seconds):
        return False
    path = quote(request["PATH_INFO"].encode("latin-1"), safe="/-_.~")
    ours = AWSRequest(request["REQUEST_METHOD"], f"https://{server.host}{path}")
    clock = patch.object(auth, "get_current_datetime", lambda *_, **__: when.replace(tzinfo=None))
    with _ONE_AT_A_TIME, clock:
        auth.S3SigV4QueryAuth(Credentials(server.key, server.secret), "s3", region, seconds).add_auth(ours)
    return dict(parse_qsl(ours.url.partition("?")[2])) == said
