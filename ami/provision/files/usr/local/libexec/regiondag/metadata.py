"""EC2's instance metadata (IMDSv2), as far as a worker needs it. Standard library only.

Every question carries a session token, which is fetched when there is none, shortly before it ends and once more when
the service no longer accepts it. Nothing is tried again beyond that: whoever asks knows how long it can wait.
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable
from urllib.parse import quote, urlsplit

ENDPOINT = "http://169.254.169.254"
ENDPOINT_VARIABLE = "REGIONDAG_METADATA"  # another endpoint, for tests

TOKEN_SECONDS = 21600  # the longest that EC2 grants
RENEW_AFTER = 0.9 * TOKEN_SECONDS
TIMEOUT_SECONDS = 2.0
LONGEST_ANSWER = 1 << 20


class MetadataError(Exception):
    """The service cannot be reached, or answers what it should not."""


class Metadata:
    """A client of the metadata service; not for several threads at once."""

    def __init__(
        self,
        endpoint: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint or os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT
        self._timeout = timeout
        self._clock = clock
        self._token = ""
        self._renew_at = 0.0

    def get(self, path: str) -> str | None:
        """Return what is at `path`, such as `meta-data/instance-id`; None if there is no such thing."""
        status, body = self._ask(path)
        if status == 401:  # the token was revoked, or this machine slept longer than it lasts
            self._token = ""
            status, body = self._ask(path)
        if status == 404:
            return None
        if status != 200:
            raise MetadataError(f"{self.endpoint} answers {status} to {path}")
        return body

    def _ask(self, path: str) -> tuple[int, str]:
        if not self._token or self._clock() >= self._renew_at:
            self._fetch_token()
        # Tags have names with colons; nothing else here needs quoting.
        return self._request("GET", f"/latest/{quote(path, safe='/:')}", {"X-aws-ec2-metadata-token": self._token})

    def _fetch_token(self) -> None:
        asked = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
        status, token = self._request("PUT", "/latest/api/token", asked)
        if status != 200 or not token or not token.isascii() or not token.isprintable():
            raise MetadataError(f"{self.endpoint} gives no session token (it answers {status})")
        self._token = token
        self._renew_at = self._clock() + RENEW_AFTER

    def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        # Not urllib: that would ask a proxy of the environment and follow redirects with the token.
        parts = urlsplit(self.endpoint)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=self._timeout)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(LONGEST_ANSWER).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise MetadataError(f"{self.endpoint} cannot be asked: {error or type(error).__name__}") from None
        finally:
            connection.close()
