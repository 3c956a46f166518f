"""Joining: a token from SSM or a secret, a manager that takes us or not, and what a person reads about it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.ami.conftest import PROGRAMS, load

join = load("join")
manager = load("manager")
metadata = load("metadata")
signing = load("signing")
tokens = load("tokens")


def make_token(**claims: object) -> str:
    parts = [{"alg": "HS256", "kid": "POOL"}, {"sub": "condor@pool.example", "iss": "pool.example", **claims}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, "c2VjcmV0LXNpZ25hdHVyZQ"])


TOKEN = make_token()
SIGNATURE = TOKEN.rpartition(".")[2]
KEY, SECRET, SESSION = "ASIAEXAMPLE", "sEcReT/+key", "session//token=="

WELCOME = """\
Destination:                 local collector
Remote Version:              $CondorVersion: 23.9.6 2026-07-12 PackageID: 23.9.6+dfsg-2.1+b10 $
Local  Version:              $CondorVersion: 23.9.6 2026-07-12 PackageID: 23.9.6+dfsg-2.1+b10 $
Instruction:                 ADVERTISE_STARTD
Authenticated using:         IDTOKENS
Remote Mapping:              condor@pool.example
Authorized:                  TRUE
"""
REFUSED = """\
ADVERTISE_STARTD failed!
AUTHENTICATE:1003:Failed to authenticate with any method
AUTHENTICATE:1004:Failed to authenticate using IDTOKENS
AUTHENTICATE:1004:Failed to authenticate using FS

"""
DENIED = """\
ADVERTISE_STARTD failed!
SECMAN:2010:Received "DENIED" from server for user alice@pool.example using method IDTOKENS.

"""
AWAY = "ERROR: failed to make connection to <10.0.0.5:9618>\n"


class Host:
    """A machine in a folder: its worker.json, its condor_ping, and a clock that sleeping moves."""

    def __init__(self, root: Path, **worker: object) -> None:
        self.root, self.now, self.naps, self.offs = root, 0.0, [], 0
        self.calls: list[list[str]] = []
        self.answers: list[str] = [WELCOME]
        self.before_nap = lambda: None
        self.worker = {"manager": "10.0.0.5", "domain": "pool.example", "token": {"text": TOKEN}, **worker}

    def run(self, argv, **options):
        self.calls.append(argv)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return subprocess.CompletedProcess(argv, int("failed" in answer), answer, "")

    def sleep(self, seconds):
        self.before_nap()
        self.naps.append(seconds)
        self.now += seconds

    def off(self):
        self.offs += 1

    def join(self, text: str | None = None) -> int:
        (self.root / "etc/regiondag").mkdir(parents=True, exist_ok=True)
        (self.root / join.WORKER_FILE).write_text(json.dumps(self.worker) if text is None else text)
        return self.start()

    def start(self) -> int:
        client = metadata.Metadata(timeout=0.5)
        return join.join(join.Machine(self.root, client, self.run, self.sleep, lambda: self.now, self.off))

    @property
    def token(self) -> str:
        return (self.root / join.TOKEN_FILE).read_text()


@pytest.fixture
def host(tmp_path, imds):
    return Host(tmp_path)


@pytest.fixture
def console(capsys):
    """Return what the console shows; whatever a test does, no secret is ever among it."""
    shown = []

    def read():
        shown.append(capsys.readouterr())
        return shown[-1].out

    yield read
    read()
    for secret in (SIGNATURE, SECRET, SESSION):
        assert not any(secret in part.out + part.err for part in shown)


def test_a_worker_joins(host, console):
    host.worker["fleet"] = "night"
    assert host.join() == 0
    assert (
        console()
        == "regiondag-join: the manager 10.0.0.5:9618 takes this machine; it powers off after 15 idle minutes\n"
    )
    assert host.token == f"{TOKEN}\n"
    assert (host.root / join.TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    assert (host.root / join.TOKENS_FOLDER).stat().st_mode & 0o777 == 0o700
    config = (host.root / join.CONFIG_FILE).read_text().splitlines()
    assert "COLLECTOR_HOST = 10.0.0.5:9618" in config
    assert 'EC2InstanceID = "i-0123456789abcdef0"' in config
    assert 'EC2InstanceLifeCycle = "spot"' in config
    assert 'RegiondagFleet = "night"' in config
    assert host.calls == [["condor_ping", "-type", "collector", "-verbose", "ADVERTISE_STARTD"]]
    assert [path.name for path in (host.root / join.TOKENS_FOLDER).iterdir()] == ["regiondag"]


def test_the_fleet_may_be_a_tag_and_a_hostile_one_is_left_out(host, imds):
    imds.set("meta-data/tags/instance/regiondag:fleet", "day")
    imds.set("meta-data/instance-type", 'x"\nALLOW_ADMINISTRATOR = *')
    assert host.join() == 0
    config = (host.root / join.CONFIG_FILE).read_text()
    assert 'RegiondagFleet = "day"' in config
    assert "ALLOW_ADMINISTRATOR" not in config


def test_without_ec2_it_joins_as_well(host, imds, console):
    imds.stop()
    host.worker["idle_minutes"] = 0
    assert host.join() == 0
    assert "never powers off" in console()
    assert "EC2InstanceID" not in (host.root / join.CONFIG_FILE).read_text()


def test_a_fleets_worker_asks_again_which_instance_it_is(host, imds, console):
    """Without that the fleet takes it for one that never joined, and starts another in its place."""
    host.worker["fleet"] = "day"
    imds.fail(503)
    host.before_nap = lambda: imds.fail(503 if len(host.naps) < 2 else None)
    assert host.join() == 0
    assert host.naps == [5, 5, 5]
    assert "do not say" not in console()
    assert 'EC2InstanceID = "i-0123456789abcdef0"' in (host.root / join.CONFIG_FILE).read_text()
    host.before_nap = lambda: None
    imds.fail(503)
    assert host.join() == 0
    assert "the slots of this machine do not say which instance it is" in console()
    assert 'RegiondagFleet = "day"' in (host.root / join.CONFIG_FILE).read_text()


def test_a_fleet_does_not_pay_for_ever_for_a_worker_without_a_pool(host, imds, console):
    imds.set("meta-data/tags/instance/regiondag:fleet", "day")
    assert host.start() == 1
    assert (host.offs, host.now) == (1, 900)
    assert host.join('{"manager": "a b"}') == 1
    assert host.offs == 2
    assert "powers off in 15 minutes" in console()


def test_no_user_data(host, console):
    assert host.start() == 1
    text = console()
    assert text.startswith(
        "regiondag-join: ERROR: /etc/regiondag/worker.json is missing: this machine got no user data"
    )
    assert "systemctl restart regiondag-join" in text
    assert host.offs == 0  # somebody may be at its console
    assert not (host.root / join.CONFIG_FILE).exists()


def test_a_wrong_worker_json_names_all_mistakes(host, console):
    assert host.join('{"manager": "a b"}') == 1
    lines = console().splitlines()
    assert [line.split(": ")[2] for line in lines[:2]] == ["/etc/regiondag/worker.json"] * 2
    assert "manager is" in lines[0]
    assert "token is missing" in lines[1]
    assert "systemctl restart regiondag-join" in lines[2]
    assert host.calls == []


def test_a_manager_of_another_series(host, console):
    host.answers = [WELCOME.replace("23.9.6", "25.14.1", 1)]
    assert host.join() == 1
    text = console()
    assert "regiondag-join: ERROR: the manager 10.0.0.5:9618 runs HTCondor 25.14.1, this machine 23.9.6" in text
    assert "HTCondor 25.14 (see: regiondag bake image --help)" in text
    assert (host.offs, host.now) == (1, 900)  # time to look at it, but not for ever
    assert "systemctl stop regiondag-join" in text


def test_another_patch_of_the_series_will_do(host):
    host.answers = [WELCOME.replace("23.9.6", "23.9.8", 1)]
    assert host.join() == 0


def test_a_manager_that_is_away_for_a_while(host, console):
    host.answers = [AWAY] * 9 + [WELCOME]
    assert host.join() == 0
    assert host.naps[:4] == [5, 7.5, 11.25, 16.875]
    assert max(host.naps) == 60
    text = console()
    away = [line for line in text.splitlines() if "cannot be reached" in line]
    assert len(away) <= 1 + host.now // 60  # one line a minute
    assert "ERROR" not in text


def test_a_manager_that_stays_away(host, console):
    host.answers = [AWAY]
    assert host.join() == 1
    assert host.offs == 1
    assert host.now == 900
    text = console()
    assert "regiondag-join: ERROR: not joined within 15 minutes: the manager 10.0.0.5:9618 cannot be reached" in text
    assert "failed to make connection to <10.0.0.5:9618>" in text


def test_for_ever_means_for_ever(host):
    host.worker["join_minutes"] = 0
    host.answers = [AWAY] * 500 + [WELCOME]
    assert host.join() == 0
    assert host.now > 8 * 3600


def test_nothing_ever_powers_off_a_machine_that_shall_stay(host):
    host.worker["join_minutes"] = 0
    host.answers = [WELCOME.replace("23.9.6", "24.0.1", 1)]
    assert host.join() == 1
    assert host.offs == 0


@pytest.mark.parametrize(("answer", "why"), [(REFUSED, "authenticate using IDTOKENS"), (DENIED, "alice@pool.example")])
def test_a_refused_token_is_named_without_being_shown(host, console, answer, why):
    host.answers = [answer]
    assert host.join() == 1
    text = console()
    first = text.splitlines()[0]
    assert first.startswith(
        "regiondag-join: ERROR: the manager 10.0.0.5:9618 refuses the token (token in worker.json; of "
    )
    assert "of condor@pool.example, for pool.example, signed with key POOL" in first
    assert why in first
    assert "cannot be reached" not in text
    assert host.offs == 1


def test_an_expired_token_says_so(host, console):
    host.worker["token"] = {"text": make_token(exp=1_000_000_000)}
    host.answers = [REFUSED]
    host.join()
    assert "expired 2001-09-09 01:46 UTC" in console()


def test_a_token_that_is_replaced_meanwhile_is_taken(host, console):
    path = host.root / "mnt/token"
    path.parent.mkdir()
    old, new = make_token(jti="old"), make_token(jti="new")
    path.write_text(old)
    host.worker["token"] = {"file": "/mnt/token"}
    host.answers = [REFUSED, WELCOME]
    host.before_nap = lambda: path.write_text(new)
    assert host.join() == 0
    assert host.token == f"{new}\n"
    console()


def test_a_token_where_htcondor_reads_it_anyway_is_not_copied(host):
    folder = host.root / "etc/condor/tokens.d"
    folder.mkdir(parents=True)
    (folder / "pool").write_text(TOKEN)
    host.worker["token"] = {"file": "/etc/condor/tokens.d/pool"}
    assert host.join() == 0
    assert [path.name for path in folder.iterdir()] == ["pool"]


@pytest.mark.parametrize(("text", "why"), [(None, "No such file"), ("hello", "holds no HTCondor token")])
def test_a_token_file_that_is_none(host, console, text, why):
    if text is not None:
        (host.root / "token").write_text(text)
    host.worker["token"] = {"file": "/token"}
    assert host.join() == 1
    assert why in console()
    assert host.calls == []


def test_a_console_line_holds_nothing_that_a_terminal_obeys(host, console):
    host.answers = [f"ERROR: \x1b[2J{AWAY}"]
    host.join()
    assert "\x1b" not in console()


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (WELCOME, "welcome"),
        (REFUSED, "refused"),
        (DENIED, "refused"),
        (WELCOME.replace("TRUE", "FALSE"), "refused"),
        (AWAY, "unreachable"),
        ("ERROR: couldn't locate (null)!", "unreachable"),
        ("SECMAN:2011:Connection closed during command authorization.", "unreachable"),
        ("", "unreachable"),
    ],
)
def test_answers_of_condor_ping(output, kind):
    assert manager.read_answer(output).kind == kind


def test_condor_ping_that_hangs_or_is_not_there():
    def hang(argv, **options):
        raise subprocess.TimeoutExpired(argv, options["timeout"])

    assert "did not answer within 30 s" in manager.ask(hang).text
    assert "does not run here" in manager.ask(lambda *_, **__: subprocess.run(["/nonexistent/x"], check=False)).text


def test_versions_are_compared_by_their_first_two_numbers():
    assert manager.series("23.10.1") == "23.10"
    assert manager.series("23.1.0") != manager.series("23.10.0")


class Aws(ThreadingHTTPServer):
    """SSM and Secrets Manager, which answer only to a signature that botocore finds right."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.answer, self.targets = 200, b"", []
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.targets.append((self.headers["X-Amz-Target"], json.loads(body)))
        good = self.headers["Authorization"] == expected_signature(self.headers, self.server.endpoint, body)
        status, answer = (self.server.status, self.server.answer) if good else (403, b'{"__type": "BadSignature"}')
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def expected_signature(headers, endpoint: str, body: bytes) -> str:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    service, region = headers["Authorization"].split("/")[3], headers["Authorization"].split("/")[2]
    kept = ("content-type", "host", "x-amz-security-token", "x-amz-target")
    request = AWSRequest("POST", f"{endpoint}/", {name: headers[name] for name in kept}, body)
    request.context["timestamp"] = headers["X-Amz-Date"]
    del request.headers["x-amz-security-token"]
    request.headers["X-Amz-Date"] = headers["X-Amz-Date"]
    request.headers["X-Amz-Security-Token"] = SESSION
    auth = SigV4Auth(Credentials(KEY, SECRET, SESSION), service, region)
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    signed = auth.signed_headers(auth.headers_to_sign(request))
    return f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, SignedHeaders={signed}, Signature={signature}"


@pytest.fixture
def aws(monkeypatch, imds):
    imds.set("meta-data/iam/security-credentials/worker", role())
    with Aws() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("REGIONDAG_AWS_ENDPOINT", server.endpoint)
        yield server
        server.shutdown()
        thread.join()


def role(**changes: str) -> str:
    return json.dumps({"Code": "Success", "AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": SESSION, **changes})


SOURCES = [
    ("ssm", "AmazonSSM.GetParameter", {"Name": "pool token", "WithDecryption": True}, {"Parameter": {"Value": TOKEN}}),
    ("secret", "secretsmanager.GetSecretValue", {"SecretId": "pool token"}, {"SecretString": TOKEN}),
]


@pytest.mark.parametrize(("kind", "target", "asked", "answer"), SOURCES)
def test_the_token_from_aws_with_a_good_signature(host, aws, console, kind, target, asked, answer):
    host.worker["token"] = {kind: "pool token"}
    aws.answer = json.dumps(answer).encode()
    assert host.join() == 0
    assert host.token == f"{TOKEN}\n"
    assert aws.targets == [(target, asked)]
    console()


def test_a_role_that_may_not(host, aws, console):
    host.worker["token"] = {"ssm": "/p"}
    aws.status, aws.answer = 400, b'{"__type": "com.amazon#AccessDeniedException", "message": "role/w may not"}'
    assert host.join() == 1
    assert (
        "ERROR: SSM parameter /p in us-east-1: AWS answers AccessDeniedException: role/w may not; let the policy of "
        "the worker's role allow reading it" in console()
    )
    assert len(aws.targets) > 5  # a policy may be mended meanwhile


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (400, b'{"__type": "ParameterNotFound"}', "there is no such parameter in this region"),
        (400, b'{"__type": "ThrottlingException"}', "AWS answers ThrottlingException"),
        (503, b"<html>", "answers 503, and no JSON"),
        (200, b"{}", "SSM parameter /p holds no HTCondor token"),
        (200, b'{"Parameter": {"Value": "c2VjcmV0LXNpZ25hdHVyZQ"}}', "SSM parameter /p holds no HTCondor token"),
    ],
)
def test_answers_of_aws_that_hold_no_token(host, aws, console, status, answer, says):
    host.worker["token"] = {"ssm": "/p"}
    aws.status, aws.answer = status, answer
    assert host.join() == 1
    assert says in console()


@pytest.mark.parametrize(
    "given",
    [None, "not json", "{}", "[]", role(Token="a\r\nX-Evil: 1"), role(AccessKeyId=7)],  # noqa: S106
)
def test_roles_that_are_none(host, aws, imds, console, given):
    imds.set("meta-data/iam/security-credentials/worker", given)
    host.worker["token"] = {"ssm": "/p"}
    assert host.join() == 1
    assert "instance profile" in console() if given is None else "the credentials of role worker" in console()
    assert aws.targets == []


def test_the_role_of_a_machine_that_is_none(host, imds, console):
    imds.stop()
    host.worker["token"] = {"ssm": "/p"}
    assert host.join() == 1
    assert "outside EC2 put the token in a file" in console()


def test_the_real_services_addresses(imds, monkeypatch):
    seen = []
    monkeypatch.setattr(signing, "call", lambda endpoint, *_: seen.append(endpoint) or {"SecretString": TOKEN})
    imds.set("meta-data/iam/security-credentials/worker", role())
    imds.set("meta-data/services/domain", "amazonaws.com.cn")
    worker = load("workerfile").parse('{"manager": "m", "token": {"secret": "x"}, "region": "cn-north-1"}')
    tokens.fetch(worker, metadata.Metadata(), Path("/"))
    assert seen == ["https://secretsmanager.cn-north-1.amazonaws.com.cn"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ssm", "secret"])
def test_the_token_from_moto(host, imds, monkeypatch, console, kind):
    from moto.server import ThreadedMotoServer

    from regiondag.util.aws import client

    imds.set("meta-data/iam/security-credentials/worker", role())
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        for name, value in {
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "y",
            "AWS_ENDPOINT_URL": endpoint,
        }.items():
            monkeypatch.setenv(name, value)
        if kind == "ssm":
            client("ssm", "us-east-1").put_parameter(Name="/p", Value=TOKEN, Type="SecureString")
        else:
            client("secretsmanager", "us-east-1").create_secret(Name="/p", SecretString=TOKEN)
        monkeypatch.setenv("REGIONDAG_AWS_ENDPOINT", endpoint)
        host.worker["token"] = {kind: "/p"}
        assert host.join() == 0
        assert host.token == f"{TOKEN}\n"
    finally:
        server.stop()
    console()


def test_check_changes_nothing(tmp_path, capsys):
    (tmp_path / "etc/regiondag").mkdir(parents=True)
    (tmp_path / join.WORKER_FILE).write_text(json.dumps({"manager": "m", "token": {"text": TOKEN}}))
    assert join.main(["--check", "--root", str(tmp_path)]) == 0
    assert "CONDOR_HOST = m\n" in capsys.readouterr().out
    assert not (tmp_path / "etc/condor").exists()
    (tmp_path / join.WORKER_FILE).write_text("{")
    assert join.main(["--check", "--root", str(tmp_path)]) == 1
    assert "it is no JSON" in capsys.readouterr().err


def test_as_the_unit_runs_it_no_secret_is_in_an_argument_list(tmp_path, imds, aws):
    """The whole program with a condor_ping that notes all argument lists and environments it can see."""
    fake = tmp_path / "bin/condor_ping"
    fake.parent.mkdir()
    fake.write_text(
        f"#!/bin/sh\ncat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' >{tmp_path}/seen\nenv >>{tmp_path}/seen\n"
        f"cat <<'X'\n{WELCOME}X\n"
    )
    fake.chmod(0o755)
    (tmp_path / "etc/regiondag").mkdir(parents=True)
    (tmp_path / join.WORKER_FILE).write_text(json.dumps({"manager": "m", "token": {"ssm": "/p"}}))
    aws.answer = json.dumps({"Parameter": {"Value": TOKEN}}).encode()
    environment = {**os.environ, "PATH": f"{fake.parent}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    argv = ["python3", str(PROGRAMS / "join.py"), "--root", str(tmp_path)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    seen = (tmp_path / "seen").read_text() + done.stdout
    assert "join.py" in seen
    for secret in (SIGNATURE, SECRET, SESSION):
        assert secret not in seen


def test_the_time_of_a_signature_is_now(aws):
    before = time.gmtime()
    credentials = signing.Credentials(KEY, SECRET, SESSION)
    assert SECRET not in repr(credentials)
    aws.answer = b"{}"
    assert signing.call(aws.endpoint, "ssm", "eu-central-1", "A.B", {}, credentials) == {}
    assert time.mktime(time.gmtime()) - time.mktime(before) < 60
