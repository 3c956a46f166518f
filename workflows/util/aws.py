"""AWS's services, and their refusals as messages. The only module that imports boto3.

Credentials, profiles and endpoints are found as every AWS tool finds them: environment, ~/.aws, the machine's role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nnlib.util.process import install_line
from regiondag.errors import AwsError

# Tags of every AMI that regiondag makes; the snapshots have them too.
MANIFEST_TAG = "regiondag:manifest"  # the hash of the image's manifest
HTCONDOR_TAG = "regiondag:htcondor"  # its version
DRIVER_TAG = "regiondag:driver"  # NVIDIA's: none, closed or open, with its version
FABRIC_MANAGER_TAG = "regiondag:fabric-manager"  # its version, or none

RETRIES = 8  # of throttled and failed calls, with growing pauses between them


def client(service: str, region: str | None = None, connections: int = 10) -> Any:
    """Return a client of an AWS service; `region` None means the one that the environment or the profile gives."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise AwsError(f"AWS needs boto3; to install it: {install_line('aws')}") from None
    config = Config(
        retries={"mode": "standard", "max_attempts": RETRIES}, max_pool_connections=connections, connect_timeout=10
    )
    try:
        return boto3.session.Session(region_name=region).client(service, config=config)
    except (BotoCoreError, ValueError) as error:
        raise AwsError(f"cannot use AWS's {service}: {error}; {_advice(error)}") from None


@contextmanager
def explain_errors(doing: str) -> Iterator[None]:
    """Turn what AWS refuses, and a way that does not lead to it, into an AwsError that says what was being done."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        code = error_code(error)
        message = error.response.get("Error", {}).get("Message", "")
        raise AwsError(f"{doing}: AWS answers {code}: {message}{_hint(code)}", temporary=code in BUSY) from None
    except (BotoCoreError, ResponseParserError) as error:  # the latter: not AWS answers, but a proxy, say
        raise AwsError(f"{doing}: {error}; {_advice(error)}", temporary=_is_network(error)) from None


REFUSALS = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "AuthFailure", "UnrecognizedClientException")
QUOTAS = ("LimitExceeded", "QuotaExceeded")  # parts of the codes, of which every service has its own
BUSY = (
    *("RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException"),
    *("ServiceUnavailable", "Unavailable", "InternalError", "InternalFailure", "InternalServiceError"),
)


def _hint(code: str) -> str:
    if code in REFUSALS:
        return "; the policy of these credentials does not allow it"
    if code in EXPIRED:
        return "; renew the credentials and check them with: aws sts get-caller-identity"
    if code == "RequestLimitExceeded":
        return "; too many calls at the moment: wait a minute"
    if any(part in code for part in QUOTAS):
        return "; a quota of this account: remove what is not needed, or ask for more with AWS's Service Quotas"
    return ""


def _is_network(error: Exception) -> bool:
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.exceptions import HTTPClientError

    return isinstance(error, (NoConnection, HTTPClientError))


def error_code(error: Exception) -> str:
    """Return the code of a ClientError of botocore, such as `InvalidAMIName.Duplicate`; empty for other errors."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def was_repeated(error: Exception) -> bool:
    """Whether botocore had sent a refused request before, so that the first may have been heard."""
    response = getattr(error, "response", None) or {}
    return bool(response.get("ResponseMetadata", {}).get("RetryAttempts"))


def _advice(error: Exception) -> str:
    name = type(error).__name__
    if "Region" in name:
        return "give the AWS region, for instance: --region eu-central-1"
    if "Credential" in name or "Token" in name or "Profile" in name:
        return "check with: aws sts get-caller-identity"
    return "check the network and try again"


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as AWS's calls take them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_of(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of what an answer of EC2 describes."""
    return {tag["Key"]: tag["Value"] for tag in raw.get("Tags", ())}
