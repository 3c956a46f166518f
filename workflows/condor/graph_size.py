"""How much memory DAGMan takes for a run's graph, said before it is submitted: DAGMan holds all nodes until it ends."""

from __future__ import annotations

from nnlib.util.memory import available_bytes
from regiondag.run.layout import NODES_DAG, RunFolder

# HTCondor 23.9 reading a million nodes of a thousand regions (scripts.bench.manager.orchestration), and few nodes of
# ten thousand regions (scripts.bench.manager.many), where it takes more with the square of the regions.
WITHOUT, OF_A_NODE, OF_REGIONS_SQUARED = 16 << 20, 1640, 12.3
MOST = 0.5  # of what the machine has free: the schedd, PRE and POST run there, too


def count_nodes(run: RunFolder) -> tuple[int, int]:
    """Return how many nodes the graph of all regions has, the last one included, and how many regions."""
    nodes, regions = 1, 0
    for path in (run.path / "regions").glob(f"*/{NODES_DAG}"):
        regions += 1
        with path.open("rb") as lines:
            nodes += sum(line.startswith(b"JOB ") for line in lines)
    return nodes, regions


def predict_bytes(nodes: int, regions: int) -> int:
    """Return about how much memory DAGMan takes for so many nodes of so many regions.

    >>> predict_bytes(1_001_001, 1000) >> 20, predict_bytes(50_001, 10_000) >> 20
    (1593, 1267)
    """
    return WITHOUT + OF_A_NODE * nodes + int(OF_REGIONS_SQUARED * regions**2)


def check_memory(run: RunFolder) -> tuple[bool, str]:
    """Return whether the whole graph fits this machine, and that in words."""
    nodes, regions = count_nodes(run)
    needed, free = predict_bytes(nodes, regions), available_bytes()
    text = f"{nodes:,} nodes, for which DAGMan takes about {needed >> 20:,} MB of memory"
    if needed <= MOST * free:
        return True, text
    return False, (
        f"{text}, more than half of the {free >> 20:,} MB that are free here. Split it: submit regions by themselves, "
        f"a few at a time (regiondag submit {run.path} --region REGION), each with a DAGMan of its own for its nodes "
        "alone; or cut study.yaml into several studies"
    )
