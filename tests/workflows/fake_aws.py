"""moto's server in a thread of the test, stricter where AWS is: it logs all calls, and faults can be planted.

What moto takes on trust and AWS does not is checked here: sizes and checksums of blocks, the count and the checksum
of a completed snapshot, tokens, states of snapshots, names and tags of images.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from moto.core import DEFAULT_ACCOUNT_ID  # type: ignore[attr-defined]
from moto.ebs.models import ebs_backends
from moto.ec2.models import ec2_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

REGION = "eu-central-1"
BLOCK = 524288

Answer = tuple[int, dict[str, str], bytes]  # status, headers, body


@dataclass(frozen=True)
class Call:
    """One request."""

    service: str
    action: str
    arguments: Mapping[str, Any]
    number: int | None = None  # of a block
    snapshot: str = ""

    @property
    def name(self) -> str:
        return f"{self.service}:{self.action}"


def ebs_error(code: str, message: str = "planted", status: int = 400) -> Answer:
    return (
        status,
        {"x-amzn-ErrorType": code, "Content-Type": "application/json"},
        json.dumps({"message": message}).encode(),
    )


def ec2_error(code: str, message: str = "planted", status: int = 400) -> Answer:
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
    return status, {"Content-Type": "text/xml"}, body.encode()


@dataclass
class FakeAws:
    """The server's state beside moto's."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    faults: list[Callable[[Call], Answer | None]] = field(default_factory=list)
    looks_until_complete: int = 0  # how often a completed snapshot is still called pending

    def __post_init__(self) -> None:
        self.app = DomainDispatcherApplication(create_backend_app)
        self.lock = threading.Lock()
        self.tokens: dict[str, tuple[bytes, Answer]] = {}
        self.completing: dict[str, int] = {}

    def count(self, action: str) -> int:
        return sum(call.action == action for call in self.calls)

    def names(self) -> list[str]:
        """The actions in order, each run of puts once."""
        names: list[str] = []
        for call in self.calls:
            if names[-1:] != [call.action]:
                names.append(call.action)
        return names

    @property
    def ec2(self) -> Any:
        return ec2_backends[DEFAULT_ACCOUNT_ID][REGION]

    @property
    def ebs(self) -> Any:
        return ebs_backends[DEFAULT_ACCOUNT_ID][REGION]

    def clear(self) -> None:
        """Forget what earlier servers of this process were told; moto's own reset takes half a second."""
        for kept in (self.ebs.snapshots, self.ec2.snapshots, self.ec2.volumes):
            kept.clear()
        for ami in [ami.id for ami in self.ec2.amis.values() if ami.owner_id == DEFAULT_ACCOUNT_ID]:
            del self.ec2.amis[ami]

    def content(self, snapshot: str) -> dict[int, bytes]:
        return {number: block.block_data for number, block in self.ebs.snapshots[snapshot].blocks.items()}

    def set_state(self, snapshot: str, state: str) -> None:
        self.ec2.snapshots[snapshot].status = state

    def __call__(self, wsgi: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = wsgi["wsgi.input"].read(int(wsgi.get("CONTENT_LENGTH") or 0))
        wsgi["wsgi.input"] = io.BytesIO(body)
        call = _recognise(wsgi, body)
        with self.lock:
            self.calls.append(call)
        for fault in self.faults:
            if answer := fault(call):
                return _send(answer, start)
        with self.lock:
            answer = self._refused(call, body) or self._ask_moto(wsgi)
            answer = self._afterwards(call, body, answer)
        return _send(answer, start)

    def _ask_moto(self, wsgi: dict[str, Any]) -> Answer:
        seen: list[Any] = []
        body = b"".join(self.app(wsgi, lambda status, headers, exc_info=None: seen.extend((status, headers))))
        return int(seen[0].split()[0]), dict(seen[1]), body

    def _refused(self, call: Call, body: bytes) -> Answer | None:
        check = {
            "StartSnapshot": self._check_start,
            "PutSnapshotBlock": self._check_block,
            "CompleteSnapshot": self._check_complete,
            "RegisterImage": self._check_register,
            "DescribeSnapshots": self._move_on,
        }.get(call.action)
        return check(call, body) if check else None

    def _check_start(self, call: Call, body: bytes) -> Answer | None:
        known = self.tokens.get(call.arguments["ClientToken"])
        if known is None:
            return None
        return known[1] if known[0] == body else ebs_error("ConflictException", "other parameters", 409)

    def _check_block(self, call: Call, body: bytes) -> Answer | None:
        if call.snapshot not in self.ebs.snapshots or call.snapshot not in self.ec2.snapshots:
            return ebs_error("ResourceNotFoundException", "no such snapshot", 404)
        if self.ec2.snapshots[call.snapshot].status != "pending" or call.snapshot in self.completing:
            return ebs_error("ValidationException", "the snapshot is not pending")
        right = base64.b64encode(hashlib.sha256(body).digest()).decode()
        if len(body) != BLOCK or call.arguments["Data-Length"] != str(BLOCK) or call.arguments["Checksum"] != right:
            return ebs_error("ValidationException", f"{len(body)} bytes, or a wrong checksum")
        return None

    def _check_complete(self, call: Call, body: bytes) -> Answer | None:
        if call.snapshot in self.completing:
            return ebs_error("ValidationException", "the snapshot is completed already")
        blocks = self.content(call.snapshot)
        digests = b"".join(hashlib.sha256(blocks[number]).digest() for number in sorted(blocks))
        right = {
            "ChangedBlocksCount": str(len(blocks)),
            "Checksum": base64.b64encode(hashlib.sha256(digests).digest()).decode(),
            "Checksum-Algorithm": "SHA256",
            "Checksum-Aggregation-Method": "LINEAR",
        }
        given = {key: call.arguments.get(key) for key in right}
        return None if given == right else ebs_error("ValidationException", f"given {given}, right {right}")

    def _check_register(self, call: Call, body: bytes) -> Answer | None:
        name, snapshot = call.arguments["Name"], call.arguments["BlockDeviceMapping.1.Ebs.SnapshotId"]
        if any(ami.name == name for ami in self.ec2.amis.values()):
            return ec2_error("InvalidAMIName.Duplicate", f"AMI name {name} is already in use")
        if self.ec2.snapshots[snapshot].status != "completed":
            return ec2_error("InvalidSnapshot.NotFound", "not completed")
        return None

    def _move_on(self, call: Call, body: bytes) -> Answer | None:
        for snapshot, looks in self.completing.items():
            self.completing[snapshot] = looks - 1
            if looks <= 0 and self.ec2.snapshots[snapshot].status == "pending":
                self.set_state(snapshot, "completed")
        return None

    def _afterwards(self, call: Call, body: bytes, answer: Answer) -> Answer:
        """Bring moto's state to what AWS's would be."""
        if answer[0] >= 300:
            return answer
        if call.action == "StartSnapshot" and call.arguments["ClientToken"] not in self.tokens:
            self.tokens[call.arguments["ClientToken"]] = body, answer
            self.set_state(json.loads(answer[2])["SnapshotId"], "pending")
        if call.action == "CompleteSnapshot":
            self.completing[call.snapshot] = self.looks_until_complete
        if call.action == "RegisterImage":
            found = re.search(rb"ami-[0-9a-f]+", answer[2])
            assert found
            tags = tags_of(call.arguments, "TagSpecification.1.Tag")
            self.ec2.create_tags([found[0].decode()], tags)
        return answer


def tags_of(arguments: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Read the tags of a call to EC2."""
    keys = {key: value for key, value in arguments.items() if key.startswith(prefix) and key.endswith(".Key")}
    return {value: arguments[key.removesuffix("Key") + "Value"] for key, value in keys.items()}


def _recognise(wsgi: Mapping[str, Any], body: bytes) -> Call:
    path, method = wsgi["PATH_INFO"], wsgi["REQUEST_METHOD"]
    headers = {
        key.removeprefix("HTTP_X_AMZ_").title().replace("_", "-"): value
        for key, value in wsgi.items()
        if key.startswith("HTTP_X_AMZ_")
    }
    if "Changedblockscount" in headers:
        headers["ChangedBlocksCount"] = headers.pop("Changedblockscount")
    if path == "/snapshots" and method == "POST":
        return Call("ebs", "StartSnapshot", json.loads(body))
    if found := re.fullmatch(r"/snapshots/(snap-\w+)/blocks/(\d+)", path):
        return Call("ebs", "PutSnapshotBlock", headers, int(found[2]), found[1])
    if found := re.fullmatch(r"/snapshots/completion/(snap-\w+)", path):
        return Call("ebs", "CompleteSnapshot", headers, None, found[1])
    arguments = {key: values[0] for key, values in parse_qs(body.decode(errors="replace")).items()}
    return Call("ec2", arguments.get("Action", path), arguments)


def _send(answer: Answer, start: Callable[..., Any]) -> list[bytes]:
    status, headers, body = answer
    kept = [(key, value) for key, value in headers.items() if key.lower() != "content-length"]
    start(f"{status} -", [*kept, ("Content-Length", str(len(body)))])
    return [body]


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # clients keep their connections

    def log(self, *arguments: Any, **named: Any) -> None:
        """Say nothing."""


@contextmanager
def serve() -> Iterator[FakeAws]:
    """Run the server; empty, without a trace of what was there before."""
    aws = FakeAws()
    aws.clear()
    server = make_server("127.0.0.1", 0, aws, threaded=True, request_handler=_Quiet)
    server.daemon_threads = True  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    aws.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield aws
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def environment(url: str) -> dict[str, str]:
    """Variables that make every AWS client talk to the server, and to nothing else."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_SESSION_TOKEN": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }
