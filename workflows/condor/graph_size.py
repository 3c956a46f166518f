"""How much memory DAGMan takes for a run's graph, said before it is submitted: DAGMan holds all nodes until it ends."""

from __future__ import annotations

from nnlib.util.memory import available_bytes
from regiondag.run.layout import NODES_DAG, RunFolder

# HTCondor 23.9 reading a million nodes (scripts.bench.manager.orchestration), and what it has without any.
OF_A_NODE, WITHOUT = 1650, 16 << 20
MOST = 0.5  # of what the machine has free: the schedd, PRE and POST run there, too


def count_nodes(run: RunFolder) -> int:
    """Return how many nodes the graph of all regions has, the last one included; a region at a time is read."""
    found = 1
    for path in (run.path / "regions").glob(f"*/{NODES_DAG}"):
        with path.open("rb") as lines:
            found += sum(line.startswith(b"JOB ") for line in lines)
    return found


def predict_bytes(nodes: int) -> int:
    """Return about how much memory DAGMan takes for so many nodes.

    >>> predict_bytes(1_000_000) >> 20
    1589
    """
    return WITHOUT + OF_A_NODE * nodes


def check_memory(run: RunFolder) -> tuple[bool, str]:
    """Return whether the whole graph fits this machine, and that in words."""
    nodes = count_nodes(run)
    needed, free = predict_bytes(nodes), available_bytes()
    text = f"{nodes:,} nodes, for which DAGMan takes about {needed >> 20:,} MB of memory"
    if needed <= MOST * free:
        return True, text
    return False, (
        f"{text}, more than half of the {free >> 20:,} MB that are free here. Split it: submit regions by themselves, "
        f"a few at a time (regiondag submit {run.path} --region REGION), each with a DAGMan of its own for its nodes "
        "alone; or cut study.yaml into several studies"
    )
