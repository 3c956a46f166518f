"""What DAGMan's scripts of a batch run: `pre WORK NODE RETRY`, `post WORK NODE RETURN ...`, `post WORK report STATUS`.

PRE passes over a chunk whose file is there; POST looks at what a job brought; the last node's POST writes the manifest.
Packed into the batch, so that it never meets newer code. What is printed goes to manager.log.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nnlib.contract import Exit
from regiondag.errors import GiveUpError, RegiondagError
from regiondag.recommend.batch import BatchFolder, PartError
from regiondag.run.layout import REPORT_NODE, SETTLED_BEFORE
from regiondag.run.manager_log import say


def main(argv: list[str] | None = None) -> int:
    """Run one script; the exit code is the script's."""
    kind, work, node, *numbers = sys.argv[1:] if argv is None else argv
    batch = BatchFolder(Path(work).parent)
    note = f"{kind} {node} {' '.join(numbers)}"
    try:
        code = _pre(batch, node) if kind == "pre" else _post(batch, node, numbers)
    except RegiondagError as error:
        say(f"{note}: exit {error.exit_code}: {error}")
        return error.exit_code
    say(f"{note}: exit {code}")
    return code


def _pre(batch: BatchFolder, node: str) -> int:
    plan, chunk = batch.read_plan(), batch.find(node)
    try:
        batch.read_part(plan, chunk)
    except PartError:
        batch.discard(chunk)
        return 0
    return SETTLED_BEFORE


def _post(batch: BatchFolder, node: str, numbers: list[str]) -> int:
    plan = batch.read_plan()
    if node == REPORT_NODE:
        batch.finish(plan)
        return 0
    chunk, code = batch.find(node), int(numbers[0])
    try:
        if code:
            raise PartError(f"its job ended with {code}; {batch.work.name}/{chunk.slug}/{chunk.name}.err says why")
        part = batch.read_part(plan, chunk)
    except PartError as error:
        batch.discard(chunk)
        if code == Exit.BAD_INPUT:
            raise GiveUpError(str(error)) from error
        raise
    say(f"{node}: {part.rows} rows of {part.customers} customers in {part.seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
