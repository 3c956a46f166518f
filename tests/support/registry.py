"""A registry of images, of this machine: so much of the distribution API as pulling one image takes.

https://github.com/opencontainers/distribution-spec
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.own_tls import OwnTls

OCI = "application/vnd.oci.image"
MANIFEST, CONFIG, LAYER = f"{OCI}.manifest.v1+json", f"{OCI}.config.v1+json", f"{OCI}.layer.v1.tar+gzip"

# As `apptainer push` to oras:// does.
SIF_CONFIG, SIF = (f"application/vnd.sylabs.sif.{what}" for what in ("config.v1+json", "layer.v1.sif"))


@dataclass(slots=True)
class Registry:
    """A running one with its image, and what it was asked."""

    name: str  # of the image, such as tools
    user: str  # and password, as `user:password`; empty: all may pull
    host: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)  # by digest
    types: dict[str, str] = field(default_factory=dict)  # of what has one
    tags: dict[str, str] = field(default_factory=dict)  # digests of manifests
    asked: list[tuple[str, str, int]] = field(default_factory=list)  # method, path and the answer's status

    def add(self, content: bytes, kind: str) -> dict[str, object]:
        """Keep a blob, and return its descriptor."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blobs[digest], self.types[digest] = content, kind
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def tag(self, name: str, config: object, kind: str, layer: dict[str, object]) -> None:
        """Give a name to what has one layer."""
        described = self.add(json.dumps(config).encode(), kind)
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": [layer]}
        self.tags[name] = str(self.add(json.dumps(manifest).encode(), MANIFEST)["digest"])


def _add_image(registry: Registry, root: Path) -> None:
    """Add an image of one layer of what lies below a folder, all of it root's, as `docker push` does."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(root, ".", filter=_of_root)
    layer = packed.getvalue()
    difference = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [difference]},
    }
    registry.tag("1.0", config, CONFIG, registry.add(gzip.compress(layer, 1), LAYER))


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, registry: Registry, *of_server: object) -> None:
        self.registry = registry
        super().__init__(*of_server)  # type: ignore[arg-type]

    def log_message(self, *_words: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        registry, name = self.registry, f"/v2/{self.registry.name}"
        needed = f"Basic {base64.b64encode(registry.user.encode()).decode()}"
        kind, _, digest = self.path.removeprefix(f"{name}/").partition("/")
        digest = registry.tags.get(digest, digest) if kind == "manifests" else digest
        content, status, headers = registry.blobs.get(digest), 200, {}
        if registry.user and self.headers.get("Authorization") != needed:
            content, status, headers = b"", 401, {"WWW-Authenticate": 'Basic realm="own"'}
        elif self.path == "/v2/":
            content = b"{}"
        elif content is None or not self.path.startswith(name):
            content, status = b'{"errors": [{"code": "NAME_UNKNOWN"}]}', 404
        else:
            headers = {"Content-Type": registry.types[digest], "Docker-Content-Digest": digest}
        registry.asked.append((self.command, self.path, status))
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content)


@contextmanager
def serving_image(root: Path, sif: Path, tls: OwnTls | None = None, user: str = "") -> Iterator[Registry]:
    """Serve what lies below a folder as the image `tools:1.0`, and a .sif as `tools:sif`; give the registry."""
    registry = Registry("tools", user)
    _add_image(registry, root)
    registry.tag("sif", {}, SIF_CONFIG, registry.add(sif.read_bytes(), SIF))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, registry)) as server:
        if tls:
            server.socket = tls.of_server().wrap_socket(server.socket, server_side=True)
        registry.host = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
