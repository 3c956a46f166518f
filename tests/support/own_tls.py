"""A certificate authority of one's own, as inside many firms, and a server's certificate of it."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

OF_KEYS = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True, slots=True)
class OwnTls:
    """What a server shows, and the folder of authorities by which clients believe it."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self.folder / "authorities" / "own.pem"

    @property
    def authorities(self) -> Path:
        """The folder with it, by its hash, as OpenSSL finds it."""
        return self.authority.parent

    def of_server(self) -> ssl.SSLContext:
        """Return what a server at 127.0.0.1 wraps its sockets with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.pem", self.folder / "server.key")
        return context


def make_own_tls(folder: Path) -> OwnTls:
    """Make keys and certificates below a new folder, for 127.0.0.1."""
    made = OwnTls(folder)
    made.authorities.mkdir(parents=True)
    of_server = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    key = ("-CA", str(made.authority), "-CAkey", "own.key")
    for words in (
        ("req", "-x509", *OF_KEYS, "-subj", "/CN=own", "-keyout", "own.key", "-out", str(made.authority)),
        ("req", *OF_KEYS, *of_server, "-keyout", "server.key", "-out", "server.csr"),
        ("x509", "-req", "-in", "server.csr", *key, "-copy_extensions", "copy", "-out", "server.pem"),
        ("rehash", str(made.authorities)),
    ):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    return made
