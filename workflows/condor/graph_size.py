"""How much memory DAGMan takes for a run's graph, said before it is submitted: DAGMan holds all of it until it ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nnlib.util.memory import available_bytes
from regiondag.run.layout import RunFolder

# Bytes, of HTCondor 23.9 and 25.14, which differ by less than 5 %, on 5,001 to 1,010,001 nodes (scripts.bench.manager:
# many, orchestration). DAGMan keeps the line of each script once more for every node.
WITHOUT, OF_A_NODE, OF_A_LETTER, OF_AN_EDGE = 18 << 20, 1080, 1.27, 7.8
MOST = 0.5  # of what the machine has free: the schedd, PRE and POST run there, too


@dataclass(frozen=True, slots=True)
class GraphSize:
    """What a graph holds; `letters` are those of the lines for PRE and POST of all nodes."""

    nodes: int
    edges: int
    letters: int

    @property
    def bytes(self) -> int:
        """About how much memory DAGMan takes for it.

        >>> GraphSize(1_001_001, 9_910_000, 330).bytes >> 20, GraphSize(50_001, 60_000, 330).bytes >> 20
        (1522, 89)
        """
        of_a_node = OF_A_NODE + OF_A_LETTER * self.letters
        return int(WITHOUT + of_a_node * self.nodes + OF_AN_EDGE * self.edges)


def read_size(dag: Path) -> GraphSize:
    """Return what a graph holds, its last node included."""
    nodes, edges, letters = 1, 0, 0
    with dag.open("rb") as lines:
        for line in lines:
            if line.startswith(b"JOB "):
                nodes += 1
            elif line.startswith(b"PARENT "):
                parents, _, children = line.partition(b" CHILD ")
                edges += parents.count(b" ") * len(children.split())
            elif line.startswith((b"SCRIPT PRE ALL_NODES ", b"SCRIPT POST ALL_NODES ")):
                letters += len(line)
    return GraphSize(nodes, edges, letters)


def check_memory(run: RunFolder) -> tuple[bool, str]:
    """Return whether the whole graph fits this machine, and that in words."""
    size, free = read_size(run.study_dag), available_bytes()
    text = f"{size.nodes:,} nodes, for which DAGMan takes about {size.bytes >> 20:,} MB of memory"
    if size.bytes <= MOST * free:
        return True, text
    return False, (
        f"{text}, more than half of the {free >> 20:,} MB that are free here. Split it: submit regions by themselves, "
        f"a few at a time (regiondag submit {run.path} --region REGION), each with a DAGMan of its own for its nodes "
        "alone; or cut study.yaml into several studies"
    )
