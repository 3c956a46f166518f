"""Fetch the pool's token from where worker.json says it is, and describe it without showing it."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import signing
from metadata import Metadata, MetadataError
from workerfile import TokenSource, WorkerFile, token_lines

ENDPOINT_VARIABLE = "REGIONDAG_AWS_ENDPOINT"  # instead of AWS's own, for tests
ROLE = "meta-data/iam/security-credentials/"
HEADER_AND_PAYLOAD = 2

# What passes by itself; everything else that AWS answers is somebody's mistake.
PASSING = ("ThrottlingException", "InternalServerError", "InternalServiceError", "ServiceUnavailable")
ADVICE = {
    "AccessDeniedException": "let the policy of the worker's role allow reading it",
    "ParameterNotFound": "there is no such parameter in this region; write the token there, as SecureString",
    "ResourceNotFoundException": "there is no such secret in this region; write the token there",
}


class TokenError(Exception):
    """The token cannot be had; `passing` if waiting alone may help."""

    def __init__(self, message: str, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


def fetch(worker: WorkerFile, metadata: Metadata, root: Path) -> str:
    """Return the token, one a line."""
    source = worker.token
    if source.kind == "text":
        text = source.value
    elif source.kind == "file":
        text = _from_file(root / source.value.lstrip("/"))
    else:
        text = _from_aws(source, worker.region, metadata)
    tokens = token_lines(text)
    if not tokens:
        raise TokenError(f"{source} holds no HTCondor token (three parts with dots between)", passing=False)
    return "\n".join(tokens) + "\n"


def described(token: str) -> str:
    """Say whose the token is, and when it ends; its signature, the secret part, is not looked at."""
    try:
        claims = [_decoded(part) for part in token.split()[0].split(".")[:HEADER_AND_PAYLOAD]]
    except (ValueError, IndexError):
        return "it is not readable"
    values = {**claims[0], **claims[1]}
    parts = [f"{word} {_shown(values[key])}" for key, word in (("sub", "of"), ("iss", "for")) if key in values]
    parts += [f"signed with key {_shown(values['kid'])}"] if "kid" in values else []
    end = values.get("exp")
    if isinstance(end, int) and 0 < end < 1 << 40:
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(end))
        parts.append(f"{'expired' if end <= time.time() else 'good until'} {day}")
    return ", ".join(parts)


def _from_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise TokenError(f"the token's file {path} cannot be read: {reason}", passing=False) from None


def _from_aws(source: TokenSource, region: str, metadata: Metadata) -> str:
    try:
        region = region or (metadata.get("meta-data/placement/region") or "").strip()
        domain = (metadata.get("meta-data/services/domain") or "amazonaws.com").strip()
        credentials = _role_credentials(metadata)
    except MetadataError as error:
        hint = "outside EC2 put the token in a file: token.file in worker.json"
        raise TokenError(f"{source} needs this machine's role, but {error} ({hint})", passing=True) from None
    if not region:
        raise TokenError("the instance does not know its region; give `region` in worker.json", passing=False)
    if source.kind == "ssm":
        service, target = "ssm", "AmazonSSM.GetParameter"
        body: dict[str, Any] = {"Name": source.value, "WithDecryption": True}
    else:
        service, target, body = "secretsmanager", "secretsmanager.GetSecretValue", {"SecretId": source.value}
    endpoint = os.environ.get(ENDPOINT_VARIABLE) or f"https://{service}.{region}.{domain}"
    try:
        answer = signing.call(endpoint, service, region, target, body, credentials)
    except signing.UnreachableError as error:
        raise TokenError(str(error), passing=True) from None
    except signing.ServiceError as error:
        advice = f"; {ADVICE[error.code]}" if error.code in ADVICE else ""
        raise TokenError(f"{source} in {region}: AWS answers {error}{advice}", error.code in PASSING) from None
    found = answer.get("Parameter", {}).get("Value") if service == "ssm" else answer.get("SecretString")
    return found if isinstance(found, str) else ""


def _role_credentials(metadata: Metadata) -> signing.Credentials:
    role = (metadata.get(ROLE) or "").split("\n")[0].strip()
    text = metadata.get(ROLE + role) if role else None
    if text is None:
        raise TokenError("this instance has no role; start it with the instance profile of workers", passing=True)
    try:
        values = json.loads(text)
        credentials = signing.Credentials(values["AccessKeyId"], values["SecretAccessKey"], values["Token"])
    except (ValueError, KeyError, TypeError):
        raise TokenError(f"the credentials of role {role} cannot be read", passing=True) from None
    # Header values: nothing that could begin another header.
    if not all(isinstance(part, str) and part.isascii() and part.isprintable() for part in credentials.parts()):
        raise TokenError(f"the credentials of role {role} are no credentials", passing=True)
    return credentials


def _decoded(part: str) -> dict[str, Any]:
    values = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    if not isinstance(values, dict):
        raise ValueError("no claims")
    return values


def _shown(value: Any) -> str:
    return json.dumps(value)[:80].strip('"')
