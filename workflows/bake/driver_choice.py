"""The driver that an image gets for the instance types it is for, and whether a baked one drives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regiondag.bake.artifact import Manifest
from regiondag.bake.image import ImageWishes
from regiondag.errors import UsageError
from regiondag.fleet.config import load_fleet
from regiondag.util.instance_gpus import choose_driver, why_not_booted, why_not_driven

AUTO = "auto"
# Debian's own open module; Debian 14 has none.
OPEN_SUITES = ("trixie",)


def list_types(types: Sequence[str], fleet: Path | None) -> tuple[str, ...]:
    """Return the instance types that are named, or those of a fleet.yaml besides, each once."""
    named = load_fleet(fleet).instances if fleet else ()
    return tuple(dict.fromkeys((*types, *named)))


def settle_driver(wishes: ImageWishes, types: Sequence[str]) -> ImageWishes:
    """Return what an image for these instance types is to be: `auto` becomes a driver, another one is checked.

    UsageError says why there is no such image.
    """
    if not types:
        if wishes.driver == AUTO:
            raise UsageError("--driver auto: for which machines? Give instance types, --for g6.xlarge, or --fleet FILE")
        return wishes
    choice = choose_driver(types, wishes.suite in OPEN_SUITES or wishes.apt_source is not None)
    if wishes.driver == "none":
        raise UsageError(f"--for {types[0]}: has GPUs, and --driver is none; give --driver auto")
    driver = choice.driver if wishes.driver == AUTO else wishes.driver
    _refuse([why_not_driven(name, driver) for name in types])
    return replace(wishes, driver=driver, least_driver=choice.least, fabric_manager=choice.fabric_manager)


def check_types(manifest: Manifest, types: Sequence[str]) -> None:
    """UsageError, with all reasons, where a baked image does not drive the instance types."""
    driver = f"{manifest.driver} {manifest.driver_version}".strip()
    if types and manifest.driver == "none":
        raise UsageError(f"this image has no NVIDIA driver; bake one with --driver auto --for {types[0]}")
    undriven = [why_not_driven(name, driver, bool(manifest.fabric_manager)) for name in types]
    _refuse([*map(why_not_booted, types), *undriven])


def _refuse(reasons: Sequence[str]) -> None:
    if found := [text for text in reasons if text]:
        raise UsageError("\n".join(found))
