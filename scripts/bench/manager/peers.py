"""The other side of the orchestration benchmark: HTCondor's own Python bindings. Run in processes of their own.

dag FOLDER REGIONS ROUNDS PARALLEL   write the same graph with htcondor2.dags: nodes, edges, VARS, RETRY, PRE, POST
events LOG                           count the jobs of an event log by their last event
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_dag(folder: Path, regions: int, rounds: int, parallel: int) -> None:
    """Write the graph in the writer's fastest shape: one layer per round over all regions, with an edge of our own.

    (One layer per region and round, which alone could hold CATEGORY, takes time that grows with the layers' square.)
    """
    from htcondor2 import dags

    class WithinRegions(dags.BaseEdge):  # type: ignore[misc]
        """Every node waits for all nodes of its own region in the layer before; no join nodes, as in ours."""

        def get_edges(self, parent: Any, child: Any, join_factory: Any) -> Iterator[tuple[range, range]]:  # noqa: ARG002
            before, after = len(parent.vars) // regions, len(child.vars) // regions
            for region in range(regions):
                yield range(region * before, (region + 1) * before), range(region * after, (region + 1) * after)

    python, code = sys.executable, "regiondag-000000000000.pyz"
    common = {
        "retries": 2,
        "retry_unless_exit": 4,
        "pre": dags.Script(folder / "pre.sh", [python, code, "$JOB", "$RETRY"]),
        "post": dags.Script(folder / "post.sh", [python, code, "$JOB", "$RETURN", "$RETRY", "$MAX_RETRIES"]),
    }
    dag = dags.DAG()
    layer: Any = None
    for index in range(rounds):
        numbers = [f"{number:04d}" for number in range(index * parallel, (index + 1) * parallel)]
        variables = [{"region": f"region-{region}", "trial": trial} for region in range(regions) for trial in numbers]
        own = {"name": f"round-{index}", "submit_description": folder / "train.sub", "vars": variables}
        layer = dag.layer(**own, **common) if layer is None else layer.child_layer(WithinRegions(), **own, **common)
    variables = [{"region": f"region-{region}", "trial": "final"} for region in range(regions)]
    layer.child_layer(WithinRegions(), name="final", submit_description=folder / "final.sub", vars=variables, **common)
    dags.write_dag(dag, folder, "study.dag")


def count_events(log: Path) -> Counter[str]:
    """Count jobs by their last event."""
    import htcondor2

    last: dict[int, object] = {}
    for event in htcondor2.JobEventLog(str(log)).events(stop_after=0):
        last[event.cluster] = event.type
    return Counter(str(kind) for kind in last.values())


def main(words: list[str]) -> None:
    """Run one of the two."""
    if words[0] == "dag":
        write_dag(Path(words[1]), *map(int, words[2:]))
    else:
        print(dict(count_events(Path(words[1]))))


if __name__ == "__main__":
    main(sys.argv[1:])
