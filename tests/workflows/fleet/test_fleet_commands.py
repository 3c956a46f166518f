"""`regiondag fleet` from end to end against moto: what is made, what is said, and what a fault leaves behind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import EndpointConnectionError

from regiondag.cli import main
from regiondag.errors import AwsError, PoolError
from regiondag.fleet import ec2, lifecycle, queue, verbs, watch
from regiondag.fleet.demand import GpuRequest, Worker
from regiondag.pool import pool as pools
from regiondag.pool.pool import Pool
from regiondag.util import aws
from tests.workflows.fleet.conftest import REGION, TAG, fleet_text, play_pool

JOB = GpuRequest(1, 1, 1000)


class FakePool:
    """The HTCondor pool, as the commands ask it."""

    def __init__(self) -> None:
        self.requests: list[GpuRequest] = []
        self.workers: dict[str, Worker] = {}

    def join(self, *ids: str, jobs: int = 0) -> None:
        self.workers |= {one: Worker(one, 1, 0 if jobs else 1, jobs) for one in ids}


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> FakePool:
    fake = FakePool()
    play_pool(monkeypatch, lambda: list(fake.requests), lambda: dict(fake.workers))
    return fake


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """Nothing sleeps; each sleep runs the next thing in the list, and one too many fails the test."""
    events: list[Callable[[], None]] = []

    def sleep(seconds: float) -> None:
        assert events, "waited longer than the test foresees"
        events.pop(0)()

    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    yield events
    assert not events


@pytest.fixture
def run(fleet_file: Path) -> Callable[..., int]:
    return lambda verb, *options: main(["fleet", verb, "--file", str(fleet_file), *options])


def tagged(raw: dict[str, object]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in raw.get("Tags", [])}  # type: ignore[attr-defined]


# --- up ----------------------------------------------------------------------------------------------------


def test_up_makes_a_template_and_the_fewest_workers_once(cloud, run, capsys):
    assert run("up") == 0
    first = cloud.ids()
    said = capsys.readouterr()
    assert sorted(said.out.split()) == sorted(first)
    assert "launch template regiondag-demo-spot created" in said.err
    assert "fleet demo is up: 2 workers of 4 at most" in said.err
    assert len(first) == 2
    assert run("up") == 0
    assert cloud.ids() == first
    assert [version["VersionNumber"] for version in cloud.versions()] == [1]
    assert cloud.names().count("CreateFleet") == 1


def test_everything_is_tagged_from_its_first_moment(cloud, run):
    assert run("up") == 0
    assert "CreateTags" not in cloud.names()
    for instance in cloud.alive():
        assert tagged(instance)[TAG] == "demo"
        assert instance["InstanceLifecycle"] == "spot"
    for kind, key in (("volumes", "Volumes"), ("launch_templates", "LaunchTemplates")):
        found = getattr(cloud.ec2, f"describe_{kind}")()[key]
        assert found
        assert all(tagged(raw)[TAG] == "demo" for raw in found)
    for operation in ("CreateLaunchTemplate", "CreateFleet"):
        kinds = {spec["ResourceType"] for spec in cloud.arguments(operation)["TagSpecifications"]}
        assert kinds == {"fleet" if operation == "CreateFleet" else "launch-template"}


def test_up_replaces_workers_that_drain(cloud, run, capsys):
    assert run("up") == 0
    assert run("scale", "--workers", "0") == 0
    capsys.readouterr()
    assert run("up") == 0
    assert len(cloud.ids()) == 4
    assert "2 workers drain and will end; they count towards workers.max until then" in capsys.readouterr().err
    assert run("up") == 0
    assert len(cloud.ids()) == 4


def test_no_capacity_as_an_error_of_the_whole_call(cloud, run, capsys):
    cloud.refuse("CreateFleet", "InsufficientInstanceCapacity", "none at all")
    assert run("up") == 8
    said = capsys.readouterr().err
    assert "0 of 2 workers started" in said
    assert "none at all -- AWS has no such machine free there now" in said.replace(
        "An error occurred (InsufficientInstanceCapacity) when calling the CreateFleet operation: ", ""
    )


def test_a_changed_file_makes_a_new_version_and_new_workers_use_it(cloud, run, fleet_file):
    assert run("up") == 0
    fleet_file.write_text(fleet_text(cloud, workers="{min: 3, max: 4}", idle_minutes="30"))
    assert run("up") == 0
    assert [version["VersionNumber"] for version in cloud.versions()] == [1, 2]
    config = cloud.arguments("CreateFleet")["LaunchTemplateConfigs"][0]
    assert config["LaunchTemplateSpecification"]["Version"] == "2"
    assert cloud.arguments("CreateFleet")["TargetCapacitySpecification"]["TotalTargetCapacity"] == 1
    assert len(cloud.ids()) == 3


def test_a_template_of_somebody_else_is_left_alone(cloud, run, capsys):
    data = {"ImageId": cloud.image}
    made = cloud.ec2.create_launch_template(LaunchTemplateName="regiondag-demo-spot", LaunchTemplateData=data)
    for options in ((), ("--dry-run",)):
        assert run("up", *options) == 8
        said = capsys.readouterr().err
        assert (
            f"regiondag-demo-spot ({made['LaunchTemplate']['LaunchTemplateId']}) exists and is not of fleet demo"
            in said
        )
        assert "it lacks the tag regiondag:fleet=demo" in said
    assert cloud.ids() == []
    assert len(cloud.versions()) == 1


def test_partial_capacity_is_explained(cloud, run, capsys, monkeypatch):
    body = """<CreateFleetResponse><fleetId>fleet-1</fleetId><errorSet>
      <item><errorCode>InsufficientInstanceCapacity</errorCode><errorMessage>no capacity</errorMessage>
        <launchTemplateAndOverrides><overrides><instanceType>g5.xlarge</instanceType><subnetId>subnet-a</subnetId>
        </overrides></launchTemplateAndOverrides></item>
      <item><errorCode>MaxSpotInstanceCountExceeded</errorCode><errorMessage>quota</errorMessage></item>
      </errorSet><fleetInstanceSet><item><instanceIds><item>i-00000001</item></instanceIds></item></fleetInstanceSet>
      </CreateFleetResponse>"""
    cloud.answers["CreateFleet"] = lambda: (200, body.encode())
    assert run("up") == 8
    said = capsys.readouterr()
    assert cloud.ids() == []
    assert said.out == "i-00000001\n"
    assert "1 of 2 workers started; what runs, stays. The same command again starts only those missing." in said.err
    assert (
        "spot (g5.xlarge in subnet-a): InsufficientInstanceCapacity: no capacity -- AWS has no such machine" in said.err
    )
    assert "MaxSpotInstanceCountExceeded: quota -- ask for more under Service Quotas" in said.err


def test_on_demand_takes_over_where_there_is_no_spot_capacity(cloud, run, fleet_file):
    fleet_file.write_text(fleet_text(cloud, purchase="spot-then-on-demand"))
    empty = b"<CreateFleetResponse><fleetId>fleet-1</fleetId></CreateFleetResponse>"
    given = [empty]
    cloud.answers["CreateFleet"] = lambda: (200, given.pop()) if given else None
    assert run("up") == 0
    assert len(cloud.ids()) == 2
    assert all("InstanceLifecycle" not in one or one["InstanceLifecycle"] != "spot" for one in cloud.alive())
    requests = [given for _, name, given in cloud.calls if name == "CreateFleet"]
    kinds = [request["TargetCapacitySpecification"]["DefaultTargetCapacityType"] for request in requests]
    assert kinds == ["spot", "on-demand"]
    assert requests[0]["ClientToken"] != requests[1]["ClientToken"]
    names = {template["LaunchTemplateName"] for template in cloud.ec2.describe_launch_templates()["LaunchTemplates"]}
    assert names == {"regiondag-demo-spot", "regiondag-demo-on-demand"}


def bought(cloud) -> list[str]:
    return sorted(one.get("InstanceLifecycle", "on-demand") for one in cloud.alive())


def test_so_many_start_on_demand_first_and_the_others_as_spot(cloud, run, fleet_file, pool, capsys):
    fleet_file.write_text(fleet_text(cloud, workers="{min: 2, max: 4, on_demand: 1}"))
    assert run("up") == 0
    assert bought(cloud) == ["on-demand", "spot"]
    kinds = [given["TargetCapacitySpecification"] for _, name, given in cloud.calls if name == "CreateFleet"]
    assert kinds == [
        {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
    ]
    pool.requests = [JOB] * 9
    assert run("scale") == 0
    assert bought(cloud) == ["on-demand", "spot", "spot", "spot"]
    (firm,) = (one["InstanceId"] for one in cloud.alive() if one.get("InstanceLifecycle") != "spot")
    cloud.ec2.terminate_instances(InstanceIds=[firm])
    assert run("scale") == 0
    assert bought(cloud) == ["on-demand", "spot", "spot", "spot"]  # it is made good
    assert run("clean") == 0
    assert "nothing that carries the tag of fleet demo is left over" in capsys.readouterr().err  # both templates serve
    assert run("down", "--now") == 0
    assert cloud.versions() == []


def test_where_none_is_had_on_demand_spot_is_better_than_none(cloud, run, fleet_file, capsys):
    fleet_file.write_text(fleet_text(cloud, workers="{min: 2, max: 4, on_demand: 1}"))
    cloud.refuse("CreateFleet", "InsufficientInstanceCapacity", "none at all", times=1)
    assert run("up") == 0
    assert bought(cloud) == ["spot", "spot"]
    said = capsys.readouterr().err
    assert "note: workers.on_demand lacks 1, which are bought as the others are:" in said
    assert "none at all -- AWS has no such machine" in said
    assert run("scale", "--workers", "3") == 0
    assert bought(cloud) == ["on-demand", "spot", "spot"]


def test_the_cost_of_those_on_demand_is_in_a_dry_run_and_in_the_bound(cloud, run, fleet_file, capsys, monkeypatch):
    spot = b"""<DescribeSpotPriceHistoryResponse><spotPriceHistorySet>%s</spotPriceHistorySet>
      </DescribeSpotPriceHistoryResponse>"""
    row = b"""<item><instanceType>%s</instanceType><productDescription>Linux/UNIX</productDescription>
      <spotPrice>0.25</spotPrice><timestamp>2026-11-28T00:00:00Z</timestamp>
      <availabilityZone>%s</availabilityZone></item>"""
    zones = [f"{REGION}{letter}".encode() for letter in "abc"]
    rows = b"".join(row % (kind, zone) for kind in (b"g5.xlarge", b"g4dn.xlarge") for zone in zones)
    cloud.answers["DescribeSpotPriceHistory"] = lambda: (200, spot % rows)
    workers = "{min: 2, max: 4, on_demand: 1}"
    prices = "{g5.xlarge: 1, g4dn.xlarge: 1}"
    fleet_file.write_text(fleet_text(cloud, workers=workers, prices=prices))
    assert run("up", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "would start 2 workers (1 on-demand, else spot) of type g5.xlarge or g4dn.xlarge" in said
    assert "an hour of these (2): $1.25" in said
    assert "an hour of all that workers.max allows (4): $1.75" in said
    fleet_file.write_text(fleet_text(cloud, workers=workers, prices=prices, max_spend="{day: 1.3}"))
    assert run("scale", "--workers", "4", "--dry-run") == 0
    assert "would start 2 workers (1 on-demand, else spot)" in capsys.readouterr().out
    assert run("up") == 0
    assert run("status") == 0
    assert "the next hour of what runs: $1.25" in capsys.readouterr().out


def test_unauthorised_says_what_was_not_allowed(cloud, run, capsys):
    cloud.refuse("CreateLaunchTemplate", "UnauthorizedOperation", "not authorized to perform: ec2:CreateLaunchTemplate")
    assert run("up") == 8
    assert (
        "creating the launch template regiondag-demo-spot: AWS answers UnauthorizedOperation" in capsys.readouterr().err
    )
    assert cloud.ids() == []


def test_throttled_calls_are_repeated_with_the_same_token(cloud, run, monkeypatch):
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    cloud.refuse("CreateFleet", "RequestLimitExceeded", times=3)
    assert run("up") == 0
    assert len(cloud.ids()) == 2
    bodies = [body for operation, body in cloud.sent if operation == "CreateFleet"]
    tokens = {pair for body in bodies for pair in body.split("&") if pair.startswith("ClientToken=")}
    assert len(bodies) == 4
    assert len(tokens) == 1


def test_ctrl_c_between_template_and_workers_is_taken_up(cloud, run, monkeypatch, clock):
    def interrupt() -> tuple[int, bytes]:
        raise KeyboardInterrupt

    cloud.answers["CreateFleet"] = interrupt
    assert run("up") == 130
    assert len(cloud.versions()) == 1
    assert cloud.ids() == []
    del cloud.answers["CreateFleet"]
    assert run("up") == 0
    assert len(cloud.versions()) == 1
    assert len(cloud.ids()) == 2


def test_ctrl_c_after_the_template_is_removed_by_down(cloud, run, clock):
    def interrupt() -> tuple[int, bytes]:
        raise KeyboardInterrupt

    cloud.answers["CreateFleet"] = interrupt
    assert run("up") == 130
    assert run("down") == 0
    assert cloud.versions() == []


def test_a_dry_run_creates_nothing_and_says_what_it_costs(cloud, run, capsys, fleet_file):
    fleet_file.write_text(fleet_text(cloud, purchase="on-demand"))
    assert run("up", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "would create the launch template regiondag-demo-on-demand" in said
    assert "would start 2 workers (on-demand) of type g5.xlarge or g4dn.xlarge" in said
    assert "an hour of these (2): $2.52" in said
    assert "an hour of all that workers.max allows (4): $5.03" in said
    assert "1.2580" in said
    assert verbs.NOT_ALL in said
    assert cloud.versions() == []
    assert cloud.ids() == []
    assert not [name for name in cloud.names() if not name.startswith(("Describe", "GetProducts"))]


def test_a_mistake_in_the_file_is_no_call_to_aws(cloud, run, capsys, fleet_file):
    fleet_file.write_text(fleet_text(cloud, token="{text: eyJ}"))  # noqa: S106
    for verb in ("up", "scale", "down", "status"):
        assert run(verb) == 2
        assert "fleet.yaml:4: token.text: the token itself may not stand here" in capsys.readouterr().err
    assert cloud.calls == []


# --- scale -------------------------------------------------------------------------------------------------


def test_scale_needs_a_fleet(cloud, run, capsys, pool):
    pool.requests = [JOB]
    assert run("scale") == 8
    assert "fleet demo is not up in eu-central-1; make it with: regiondag fleet up" in capsys.readouterr().err


def test_scale_starts_what_the_queue_asks_for(cloud, run, capsys, pool):
    assert run("up") == 0
    pool.join(*cloud.ids(), jobs=1)
    pool.requests = [JOB] * 5
    assert run("scale") == 0
    assert len(cloud.ids()) == 4
    said = capsys.readouterr()
    assert "5 idle GPU jobs, 0 GPUs unclaimed, 0 workers booting, 2 running: 4 wanted" in said.err
    assert run("scale") == 0
    assert len(cloud.ids()) == 4
    assert cloud.names().count("CreateFleet") == 2


def test_scale_dry_run_starts_nothing(cloud, run, capsys, pool):
    pool.requests = [JOB]
    assert run("scale", "--dry-run") == 0
    assert "would start 2 workers (spot)" in capsys.readouterr().out
    assert "CreateFleet" not in cloud.names()


def test_scale_says_that_the_file_has_changed(cloud, run, capsys, fleet_file):
    assert run("up") == 0
    fleet_file.write_text(fleet_text(cloud, idle_minutes="30"))
    assert run("scale") == 0
    assert "has changed since `regiondag fleet up`; new workers are as before it" in capsys.readouterr().err
    fleet_file.write_text(fleet_text(cloud, purchase="on-demand"))
    assert run("scale") == 8
    assert "the launch template regiondag-demo-on-demand is missing; `regiondag fleet up`" in capsys.readouterr().err


def test_workers_of_another_htcondor_are_not_started(cloud, run, capsys, pool, monkeypatch):
    newer = Pool("default", "installed", (25, 14, 1))
    for name in ("find_pool", "require_pool"):
        monkeypatch.setattr(pools, name, lambda name=None: newer)
    pool.requests = [JOB] * 9
    for words in (("up",), ("scale",), ("scale", "--workers", "1")):
        assert run(*words) == 8
        assert f"the image {cloud.image} has HTCondor 23.9, the pool default 25.14; workers" in capsys.readouterr().err
    assert cloud.versions() == []
    assert cloud.ids() == []


def test_workers_that_cannot_hear_of_draining_are_named(cloud, run, capsys, monkeypatch):
    assert run("up") == 0
    monkeypatch.setattr(ec2, "not_nitro", lambda client, types: set(types))
    assert run("scale", "--workers", "1") == 0
    assert "does not see new tags: it ends when it has been idle long enough, or by `regiondag" in (
        capsys.readouterr().err
    )


def test_a_number_by_hand_grows_and_drains_idle_ones_first(cloud, run, capsys, pool):
    assert run("up") == 0
    assert run("scale", "--workers", "4") == 0
    four = cloud.ids()
    assert len(four) == 4
    pool.join(*four[:2], jobs=1)
    pool.join(*four[2:])
    capsys.readouterr()
    assert run("scale", "--workers", "1", "--dry-run") == 0
    assert capsys.readouterr().out.count("would drain") == 3
    assert not any("regiondag-drain" in tagged(one) for one in cloud.alive())
    assert run("scale", "--workers", "1") == 0
    draining = {one["InstanceId"] for one in cloud.alive() if tagged(one).get("regiondag-drain") == "peaceful"}
    assert len(draining) == 3
    assert set(four[2:]) < draining
    assert "TerminateInstances" not in cloud.names()
    assert run("scale", "--workers", "4") == 0
    assert "3 workers still drain and count towards workers.max" in capsys.readouterr().err
    assert len(cloud.ids()) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "5"), "--workers 5: "),
        (("--workers", "-1"), "cannot be negative"),
        (("--workers", "1", "--watch"), "give one of the two"),
        (("--watch", "1"), "--watch 1: legal are 15 to 86400 seconds"),
        (("--watch", "--dry-run"), "leave out --watch"),
    ],
)
def test_wrong_arguments(cloud, run, capsys, options, message):
    assert run("scale", *options) == 2
    assert message in capsys.readouterr().err


def test_watching_survives_what_passes_and_ends_with_ctrl_c(cloud, run, capsys, monkeypatch, pool, fleet_file):
    assert run("up") == 0
    pauses: list[float] = []
    busy = (200, b"<CreateFleetResponse><fleetId>fleet-1</fleetId></CreateFleetResponse>")

    def no_network() -> tuple[int, bytes]:
        raise EndpointConnectionError(endpoint_url="https://ec2.example")

    monkeypatch.setattr(aws, "RETRIES", 1)
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    pool.requests = [JOB] * 9

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        cloud.answers.clear()
        if len(pauses) == 1:
            cloud.answers["DescribeImages"] = no_network
        elif len(pauses) == 2:
            cloud.answers["CreateFleet"] = lambda: busy
        elif len(pauses) == 3:
            monkeypatch.setattr(queue, "query_workers", _raise(PoolError("the pool does not answer")))
        elif len(pauses) == 4:
            monkeypatch.setattr(queue, "query_workers", lambda pool, fleet: {})
        else:
            raise KeyboardInterrupt

    cloud.refuse("DescribeImages", "RequestLimitExceeded")
    original = watch.watch
    monkeypatch.setattr(watch, "watch", lambda step, seconds, tell: original(step, seconds, tell, pause))
    assert run("scale", "--watch", "20") == 130
    said = capsys.readouterr().err
    assert pauses == [20.0] * 5
    assert "RequestLimitExceeded" in said
    assert "Could not connect to the endpoint URL" in said
    assert "0 of 2 workers started" in said
    assert "the pool does not answer" in said
    assert said.count("looking again in 20 seconds") == 4
    assert said.count("9 idle GPU jobs, 0 GPUs unclaimed, 2 workers booting, 2 running: 4 wanted") == 2
    assert len(cloud.ids()) == 4


def _raise(error: Exception) -> Callable[..., None]:
    def raising(*_: object) -> None:
        raise error

    return raising


def test_what_was_just_said_is_not_said_again():
    said: list[str] = []
    tell, next_round = watch.select_news(said.append)
    for text in ("a", "a", "b", "a"):
        next_round()
        tell(text)
    assert said == ["a", "b", "a"]


@pytest.mark.parametrize("error", [AwsError("refused"), PoolError("no pool")])
def test_watching_ends_with_what_no_waiting_cures(error):
    with pytest.raises(type(error)):
        watch.watch(_raise(error), 20, print, _raise(AssertionError("it waited")))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """`--watch` does the next thing in the list between two looks; Ctrl-C comes after the last."""
    events: list[Callable[[], object]] = []

    def pause(seconds: float) -> None:
        if not events:
            raise KeyboardInterrupt
        events.pop(0)()

    original = watch.watch
    monkeypatch.setattr(watch, "watch", lambda step, seconds, tell: original(step, seconds, tell, pause))
    yield events
    assert not events


def test_watching_stops_paying_for_workers_that_never_join(cloud, run, capsys, pool, fleet_file, looks):
    fleet_file.write_text(fleet_text(cloud, workers="{min: 0, max: 1}"))
    assert run("up") == 0
    pool.requests = [JOB]
    ended: list[str] = []
    started: list[int] = []

    def end() -> None:
        ended.extend(cloud.ids())
        cloud.ec2.terminate_instances(InstanceIds=cloud.ids())

    def count() -> None:
        started.append(cloud.names().count("CreateFleet"))

    def by_hand() -> None:
        assert run("scale", "--workers", "1") == 0
        pool.join(*cloud.ids(), jobs=1)

    looks += [count, end, count, end, count, count, by_hand, end, count]
    assert run("scale", "--watch") == 130
    said = capsys.readouterr().err
    assert started == [1, 2, 2, 2, 4]  # the third by hand; it joined, so that the fourth was started again
    assert said.count("the last 2 workers that ended had never joined the pool, so no more are started") == 1
    assert f"--region {REGION} --instance-id {ended[1]} | grep regiondag; correct it, then start the watch" in said


def test_watching_stops_paying_for_jobs_that_every_worker_refuses(cloud, run, capsys, pool, fleet_file, looks):
    fleet_file.write_text(fleet_text(cloud, workers="{min: 0, max: 1}"))
    assert run("up") == 0
    pool.requests = [GpuRequest(1, 1, 1000, job="7.0")]
    started: list[int] = []

    def refuse() -> None:
        pool.join(*cloud.ids())
        pool.requests = [GpuRequest(1, 1, 1000, refused=True, job="7.0")]

    def idle_out() -> None:
        pool.workers.clear()
        pool.requests = [GpuRequest(1, 1, 1000, job="7.0")]
        cloud.ec2.terminate_instances(InstanceIds=cloud.ids())
        started.append(cloud.names().count("CreateFleet"))

    def submit() -> None:
        started.append(cloud.names().count("CreateFleet"))
        pool.requests.append(GpuRequest(1, 1, 1000, job="8.0"))

    looks += [refuse, idle_out, refuse, idle_out, lambda: None, submit]
    assert run("scale", "--watch") == 130
    assert started == [1, 2, 2]
    assert cloud.names().count("CreateFleet") == 3
    assert capsys.readouterr().err.count("1 idle GPU jobs were refused by 2 or more workers that have ended since") == 1


def test_a_look_that_fails_to_start_workers_is_remembered(cloud, run, capsys, pool, fleet_file, looks):
    """EC2 gives one of the workers asked for, every time, and that one never joins."""
    fleet_file.write_text(fleet_text(cloud, workers="{min: 0, max: 4}"))
    assert run("up") == 0
    pool.requests = [JOB] * 4
    tags = [{"ResourceType": "instance", "Tags": [{"Key": TAG, "Value": "demo"}]}]

    def one() -> tuple[int, bytes]:
        made = cloud.ec2.run_instances(ImageId=cloud.image, MinCount=1, MaxCount=1, TagSpecifications=tags)
        item = f"<item><instanceIds><item>{made['Instances'][0]['InstanceId']}</item></instanceIds></item>"
        return 200, f"<CreateFleetResponse><fleetInstanceSet>{item}</fleetInstanceSet></CreateFleetResponse>".encode()

    def end_the_oldest() -> None:
        cloud.ec2.terminate_instances(InstanceIds=cloud.ids()[:1])

    cloud.answers["CreateFleet"] = one
    looks += [lambda: None, *[end_the_oldest] * 3]
    assert run("scale", "--watch") == 130
    said = capsys.readouterr().err
    assert "1 of 3 workers started" in said
    assert "the last 2 workers that ended had never joined the pool" in said
    assert cloud.names().count("CreateFleet") == 3
    assert cloud.ids() == []


# --- down --------------------------------------------------------------------------------------------------


def test_down_waits_until_workers_have_ended_by_themselves(cloud, run, capsys, pool, clock):
    assert run("up") == 0
    one, two = cloud.ids()
    pool.join(one, jobs=1)
    pool.join(two)
    seen: list[bool] = []

    def end(which: str) -> Callable[[], None]:
        def ending() -> None:
            seen.append(all(tagged(raw)["regiondag-drain"] == "peaceful" for raw in cloud.alive()))
            pool.workers.pop(which)
            cloud.ec2.terminate_instances(InstanceIds=[which])

        return ending

    clock += [end(two), end(one)]
    assert run("down") == 0
    said = capsys.readouterr().err
    assert seen == [True, True]
    assert "2 still there, with 1 running job" in said
    assert "1 still there, with 1 running job" in said
    assert "fleet demo is gone" in said
    assert "TerminateInstances" not in cloud.names()
    assert len(cloud.arguments("DeleteFleets")["FleetIds"]) == 1
    assert cloud.versions() == []
    names = cloud.names()
    assert names.index("DeleteLaunchTemplate") < names.index("CreateTags") < names.index("DeleteFleets")


def test_down_that_takes_too_long_kills_nothing(cloud, run, capsys, pool, monkeypatch):
    assert run("up") == 0
    pool.join(*cloud.ids(), jobs=2)
    moments = iter((0.0, 2.0, 9.0))
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(sleep=None, monotonic=lambda: next(moments)))
    assert run("down", "--timeout", "1s") == 1
    said = capsys.readouterr()
    assert "2 instances of fleet demo still run; nothing was ended by force" in said.err
    assert len(said.out.splitlines()) == 2 + 2
    assert len(cloud.ids()) == 2
    assert "DeleteFleets" not in cloud.names()


def test_down_now_says_what_it_ends(cloud, run, capsys, pool, clock):
    assert run("up") == 0
    pool.join(*cloud.ids(), jobs=2)
    assert run("down", "--now") == 0
    assert "2 instances end now, with 4 running jobs; their jobs go back to the queue" in capsys.readouterr().err
    assert cloud.ids() == []
    assert cloud.names()[-5:].count("DescribeVolumes") == 1


def test_down_without_a_pool_goes_on(cloud, run, capsys, clock, monkeypatch):
    assert run("up") == 0
    monkeypatch.setattr(queue, "query_workers", _raise(PoolError("the pool does not answer")))
    assert run("down", "--now") == 0
    assert "an unknown number of running jobs (no pool answers)" in capsys.readouterr().err


def test_down_tells_what_is_left(cloud, run, capsys, monkeypatch):
    ticks = iter(range(0, 1000, 40))
    monkeypatch.setattr(
        lifecycle, "time", SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: float(next(ticks)))
    )
    tags = [{"ResourceType": "volume", "Tags": [{"Key": TAG, "Value": "demo"}]}]
    volume = cloud.ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=tags)["VolumeId"]
    snapshot = cloud.ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    cloud.ec2.create_tags(Resources=[snapshot], Tags=[{"Key": TAG, "Value": "demo"}])
    assert run("down") == 1
    said = capsys.readouterr()
    assert said.out.splitlines() == [f"volume {volume} (available)", f"snapshot {snapshot} (completed)"]
    assert "fleet demo has ended, but the above carries its tag and may cost money" in said.err


def test_down_of_nothing(cloud, run, capsys, clock):
    assert run("down") == 0
    assert "fleet demo is gone" in capsys.readouterr().err


def test_down_ends_a_stopped_instance(cloud, run, clock):
    assert run("up") == 0
    one, two = cloud.ids()
    cloud.ec2.stop_instances(InstanceIds=[one])
    clock.append(lambda: cloud.ec2.terminate_instances(InstanceIds=[two]) and None)
    assert run("down") == 0
    assert cloud.arguments("TerminateInstances")["InstanceIds"] == [one]


def test_down_of_another_fleet_touches_nothing(cloud, run, clock, fleet_file):
    assert run("up") == 0
    fleet_file.write_text(fleet_text(cloud, fleet="other"))
    assert run("down", "--now") == 0
    assert len(cloud.ids()) == 2
    assert len(cloud.versions()) == 1


def test_down_dry_run(cloud, run, capsys, pool):
    assert run("up") == 0
    pool.join(*cloud.ids(), jobs=1)
    capsys.readouterr()
    assert run("down", "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.startswith("would drain 2 instances, with 2 running jobs\n")
    assert f"  {cloud.ids()[0]} g5.xlarge spot {REGION}a running: $0.0000 an hour" in said
    assert "would delete the launch template regiondag-demo-spot" in said
    assert len(cloud.ids()) == 2
    assert len(cloud.versions()) == 1


def test_a_wrong_timeout(run, capsys):
    assert run("down", "--timeout", "soon") == 2
    assert "--timeout soon: legal is a duration such as 30m, 2h or 1d" in capsys.readouterr().err


# --- status ------------------------------------------------------------------------------------------------


def test_status(cloud, run, capsys, pool):
    assert run("status") == 0
    assert capsys.readouterr().out == "no workers\n"
    assert run("up") == 0
    one, two = cloud.ids()
    pool.join(one, jobs=1)
    capsys.readouterr()
    assert run("status") == 0
    said = capsys.readouterr().out
    assert "fleet demo in eu-central-1" in said
    assert "joined" in said
    assert "booting" in said
    assert said.rstrip().endswith("2 workers, $0.00 an hour")
    assert run("status", "--json") == 0
    seen = json.loads(capsys.readouterr().out)
    rows = {row["instance"]: row for row in seen["rows"]}
    assert (rows[one]["jobs"], rows[one]["gpus_claimed"], rows[two]["jobs"]) == (1, 1, None)
    assert seen["orphans"] == []


def test_status_points_at_workers_that_never_joined(cloud, run, capsys, monkeypatch):
    assert run("up") == 0
    capsys.readouterr()
    hour = time.time() + 3600
    monkeypatch.setattr(verbs, "time", SimpleNamespace(time=lambda: hour))
    assert run("status") == 0
    said = capsys.readouterr()
    assert said.out.count("never joined") == 2
    assert "on a machine with the AWS CLI and your own credentials" in said.err
    assert f"aws ec2 get-console-output --latest --output text --region {REGION} --instance-id i-" in said.err


def test_status_without_a_pool(cloud, run, capsys, monkeypatch):
    monkeypatch.setattr(pools, "find_pool", lambda name=None: None)
    assert run("up") == 0
    assert run("status") == 0
    said = capsys.readouterr()
    assert "no pool answers here" in said.err
    assert "running" in said.out
