"""One signed call to an AWS service that speaks JSON (Systems Manager, Secrets Manager). Standard library only.

AWS's Signature Version 4 for the one kind of request needed here: a POST to `/` without a query. In this process, not
by a program, so that neither key nor answer passes through an argument list or a pipe.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 15
LONGEST_ANSWER = 1 << 20


class ServiceError(Exception):
    """AWS refused the call; `code` is its name for why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code


class UnreachableError(Exception):
    """The service could not be asked."""


@dataclass(frozen=True)
class Credentials:
    """A role's temporary credentials."""

    key: str
    secret: str = field(repr=False)
    session: str = field(repr=False)

    def parts(self) -> tuple[str, str, str]:
        """Return all of them."""
        return self.key, self.secret, self.session


def call(
    endpoint: str, service: str, region: str, target: str, body: Mapping[str, Any], credentials: Credentials
) -> dict[str, Any]:
    """Return the service's answer to `target`, for instance `AmazonSSM.GetParameter`."""
    payload = json.dumps(body).encode()
    parts = urlsplit(endpoint)
    headers = signed_headers(parts.netloc, service, region, target, payload, credentials, datetime.now(UTC))
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.netloc, timeout=TIMEOUT_SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", "/", payload, headers)
        answer = connection.getresponse()
        status, text = answer.status, answer.read(LONGEST_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"{endpoint} cannot be asked: {error or type(error).__name__}") from None
    finally:
        connection.close()
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise UnreachableError(f"{endpoint} answers {status}, and no JSON")
    if status != 200:
        code = str(values.get("__type", f"HTTP {status}")).rpartition("#")[2]
        raise ServiceError(code, str(values.get("message") or values.get("Message") or ""))
    return values


def signed_headers(
    host: str, service: str, region: str, target: str, payload: bytes, credentials: Credentials, now: datetime
) -> dict[str, str]:
    """Return all headers of the POST of `payload`, with its signature."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {
        "content-type": "application/x-amz-json-1.1",
        "host": host,
        "x-amz-date": stamp,
        "x-amz-security-token": credentials.session,
        "x-amz-target": target,
    }
    names = ";".join(headers)  # in alphabetical order, as above
    canonical = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"POST\n/\n\n{canonical}\n{names}\n{hashlib.sha256(payload).hexdigest()}"
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers
