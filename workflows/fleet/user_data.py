"""The cloud-config that a fleet's workers start with."""

from __future__ import annotations

from collections.abc import Mapping

from regiondag.condor.templates import template_environment


def render_user_data(worker: Mapping[str, object]) -> str:
    """Return the cloud-config that writes `worker` to /etc/regiondag/worker.json of an instance."""
    return template_environment().get_template("fleet/user-data.j2").render(worker=worker)
