"""Read fleet.yaml. `load_fleet` reports every mistake at once and asks nobody but the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlib.spec.checks import Check, matching, real, whole
from regiondag.errors import ConfigError
from regiondag.util.resources import resource_dir
from regiondag.util.schema import Layer, Problems, Section, choice, size
from regiondag.util.yaml_file import load_yaml

LATEST = "latest"
SPOT = "spot"
ON_DEMAND = "on-demand"
PURCHASES = (SPOT, ON_DEMAND, "spot-then-on-demand")
GB = 1 << 30
MOST_WORKERS = 1000
MOST_MINUTES = 7 * 24 * 60
LEAST_LEASE = 5  # a manager may boot meanwhile
LEASE_MINUTES = 60
WINDOWS = ("day", "run")

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?")
REGION = re.compile(r"[a-z]{2,5}(-[a-z]+)+-[0-9]+")
IMAGE = re.compile(r"ami-([0-9a-f]{8}|[0-9a-f]{17})")
DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
HOST = re.compile(rf"(?:{DOMAIN.pattern}|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?")
INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
SUBNET = re.compile(r"subnet-[0-9a-f]+")
SECURITY_GROUP = re.compile(r"sg-[0-9a-f]+")
PROFILE = re.compile(r"[A-Za-z0-9+=,.@_-]{1,128}|arn:aws[a-z-]*:iam::[0-9]{12}:instance-profile/[A-Za-z0-9+=,.@_/-]+")
PARAMETER = re.compile(r"[A-Za-z0-9_./-]{1,1011}")
SECRET = re.compile(r"[A-Za-z0-9/_+=.@:-]{1,512}")
KNOB = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
NOT_KNOBS = ("use", "include", "if", "elif", "else", "endif", "error", "warning")  # HTCondor's own words in its files

TOKEN = "{ssm: /path/of/a/parameter} or {secret: name-of-a-secret}"  # noqa: S105 (what is legal, not a token)
NO_TEXT = (
    "the token itself may not stand here: a fleet's user data can be read by every job on its workers and by everybody "
    "who may describe instances; store it with `aws ssm put-parameter --type SecureString` and give {ssm: NAME}"
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What fleet.yaml says."""

    file: Path
    lines: Mapping[str, int]  # of the top-level keys, for what only AWS can find wrong
    name: str
    region: str
    image: str  # ami-... or `latest`
    manager: str
    domain: str  # may be empty
    token: tuple[str, str]  # (`ssm` or `secret`, its name)
    instances: tuple[str, ...]
    purchase: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    instance_profile: str
    minimum: int
    maximum: int
    on_demand: int  # of the workers that run, so many are bought on demand before any other way
    idle_minutes: int
    join_minutes: int
    lease_minutes: int
    disk_gb: int
    prices: Mapping[str, float]  # dollars for an hour on demand
    settings: Mapping[str, str]
    max_spend: Mapping[str, float]  # dollars, for `day` and `run`; empty: no bound

    @property
    def ways(self) -> tuple[str, ...]:
        """How workers beyond `on_demand` are bought, the first way first: `spot`, `on-demand` or both."""
        return (SPOT, ON_DEMAND) if self.purchase == PURCHASES[2] else (self.purchase,)

    @property
    def purchases(self) -> tuple[str, ...]:
        """All ways in which workers are bought; each needs a launch template and prices."""
        return tuple(dict.fromkeys((*self.ways, *([ON_DEMAND] if self.on_demand else []))))

    def problem(self, key: str, text: str) -> str:
        """Return a message about what stands at a top-level key."""
        return f"{self.file}:{self.lines.get(key, 1)}: {key}: {text}"


def load_fleet(path: Path) -> Fleet:
    """Read fleet.yaml; ConfigError with every mistake: file, line, key path, value seen, what is legal."""
    example = resource_dir("ami") / "fleet.example.yaml"
    document = load_yaml(path, "fleet", f"copy and edit the example {example}, or give the file with --file")
    if not isinstance(document.value, dict):
        kind = type(document.value).__name__
        raise ConfigError([f"{path}:1: a fleet is a mapping of keys to values, seen a {kind}"])
    problems = Problems(document)
    section = Section(problems, [Layer(document.value, ())])
    lines = {key: problems.line_of((key,)) for key in document.value}
    fleet = _read(section, path, lines)
    section.finish()
    if problems.found:
        raise ConfigError(problems.texts())
    return fleet


def _read(section: Section, path: Path, lines: Mapping[str, int]) -> Fleet:
    minimum, maximum, on_demand = _workers(section)
    instances = _list(
        section, "instances", INSTANCE_TYPE, "a list of EC2 instance types with GPUs, such as [g5.xlarge]"
    )
    return Fleet(
        file=path,
        lines=lines,
        name=_needed(section, "fleet", NAME, "1 to 60 lower-case letters, digits and '-' between them"),
        region=_needed(section, "region", REGION, "an AWS region such as eu-central-1"),
        image=section.read("image", LATEST, matching(f"{LATEST}|{IMAGE.pattern}", "latest, or ami-...")),
        manager=_manager(section),
        domain=section.read("domain", "", matching(DOMAIN.pattern, "a domain such as pool.example")),
        token=_token(section),
        instances=instances,
        purchase=section.read("purchase", SPOT, choice(PURCHASES)),
        subnets=_list(section, "subnets", SUBNET, "a list of subnets: [subnet-...]"),
        security_groups=_list(section, "security_groups", SECURITY_GROUP, "a list of security groups: [sg-...]"),
        instance_profile=_needed(section, "instance_profile", PROFILE, "the name of an instance profile, or its ARN"),
        minimum=minimum,
        maximum=maximum,
        on_demand=on_demand,
        idle_minutes=section.read("idle_minutes", 15, whole(0, MOST_MINUTES)),
        join_minutes=section.read("join_minutes", 15, whole(0, MOST_MINUTES)),
        lease_minutes=section.read("lease_minutes", LEASE_MINUTES, whole(LEAST_LEASE, MOST_MINUTES)),
        disk_gb=-(-section.read("disk", 30 * GB, size(GB)) // GB),
        prices=_prices(section, instances),
        settings=section.read(
            "settings", {}, Check(_settings, "a mapping of HTCondor's settings to values on one line")
        ),
        max_spend=_max_spend(section),
    )


def _needed(section: Section, key: str, pattern: re.Pattern[str], legal: str) -> str:
    if key not in section:
        section.problems.add((key,), f"missing: {legal}")
    return section.read(key, "", matching(pattern.pattern, legal))


def _manager(section: Section) -> str:
    legal = "the address of the pool's central manager: HOST or HOST:PORT"
    value = _needed(section, "manager", HOST, legal)
    found = HOST.fullmatch(value)
    if found and found["port"] and not 0 < int(found["port"]) < 65536:
        section.problems.add(("manager",), f"seen {value!r}: ports are 1 to 65535")
    return value


def _list(section: Section, key: str, pattern: re.Pattern[str], legal: str) -> tuple[str, ...]:
    def of(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            raise ValueError
        for item in value:
            if not isinstance(item, str) or not pattern.fullmatch(item):
                raise ValueError(f"{item!r} is none")
            if value.count(item) > 1:
                raise ValueError(f"{item} stands there twice")
        return tuple(value)

    if key not in section:
        section.problems.add((key,), f"missing: {legal}")
    return section.read(key, (), Check(of, legal))


def _workers(section: Section) -> tuple[int, int, int]:
    below = section.section("workers")
    minimum = below.read("min", 0, whole(0, MOST_WORKERS))
    maximum = below.read("max", MOST_WORKERS, whole(1, MOST_WORKERS))
    on_demand = below.read("on_demand", 0, whole(0, MOST_WORKERS))
    if "max" not in below:
        below.problems.add(("workers", "max"), "missing: the most workers that may run, such as workers: {max: 4}")
    below.finish()
    for key, number in (("min", minimum), ("on_demand", on_demand)):
        if number > maximum:
            below.problems.add(("workers", key), f"{number} is more than workers.max, {maximum}")
    return minimum, maximum, on_demand


def _token(section: Section) -> tuple[str, str]:
    problems, nothing = section.problems, ("ssm", "")
    value = section.raw("token")
    if "token" not in section:
        problems.add(("token",), f"missing: {TOKEN}")
    elif isinstance(value, dict) and "text" in value:
        problems.add(("token", "text"), NO_TEXT)
    elif not isinstance(value, dict) or len(value) != 1 or not value.keys() <= {"ssm", "secret"}:
        seen = sorted(value) if isinstance(value, dict) else type(value).__name__  # it may be the token: not shown
        problems.add(("token",), f"seen {seen}, legal: {TOKEN}")
    else:
        ((kind, name),) = value.items()
        pattern = PARAMETER if kind == "ssm" else SECRET
        if isinstance(name, str) and pattern.fullmatch(name):
            return kind, name
        problems.add(("token", kind), f"legal: {pattern.pattern} (the name of what holds the token)")
    return nothing


def _prices(section: Section, instances: tuple[str, ...]) -> dict[str, float]:
    below = section.section("prices")
    # Where `instances` is wrong itself, it cannot say which prices belong to it.
    names = instances or tuple(name for layer in below.layers for name in layer.value)
    prices = {name: below.read(name, 0.0, real(0.0001, 10_000)) for name in names if name in below}
    below.finish(names)
    return prices


def _max_spend(section: Section) -> dict[str, float]:
    below = section.section("max_spend")
    bounds = {window: below.read(window, 0.0, real(0.01, 10_000_000)) for window in WINDOWS if window in below}
    below.finish(WINDOWS)
    if "max_spend" in section and not bounds:
        section.problems.add(("max_spend",), "legal: {day: 50, run: 200}, one of them or both, in dollars")
    return bounds


def _settings(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError
    for name, text in value.items():
        if not KNOB.fullmatch(name) or name.lower() in NOT_KNOBS:
            raise ValueError(f"{name!r} is no name of a setting")
        line = str(text)
        if not isinstance(text, str | int | float) or not line.isprintable() or line.rstrip().endswith("\\"):
            raise ValueError(f"{name}: {text!r} is no value on one line")
    return {name: str(text) for name, text in value.items()}
