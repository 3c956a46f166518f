"""A job that directs ranks as `nnlib train --ranks` does: what directing them takes of its own time, and of theirs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping

from scripts.bench.common.processes import ONE_THREAD, measure, module
from scripts.bench.level3.work import Ranked, read

LONGEST = 300.0  # seconds


def measure_directed(work: Ranked) -> Mapping[str, float]:
    """Return milliseconds of processor time a step: of the job, and of its busiest rank without waiting."""
    done = measure(module("level3.directed", work.arguments()), timeout=LONGEST, env=ONE_THREAD)
    found: Mapping[str, float] = json.loads(done.output)
    return found


def main() -> None:
    """Direct the ranks of the work named on the command line; print what it took."""
    work = read(sys.argv[1])
    from nnlib.util.threads import take_over_blas

    take_over_blas()
    import numpy as np

    from nnlib.parallel.crew import Crew
    from nnlib.parallel.ranks import RanksBackend
    from scripts.bench.level3.rank import problem, settings_of

    network, examples = problem(work)
    with Crew(work.device, work.ranks, work.ranks) as crew:
        engine = RanksBackend(crew).engine(network, examples, settings_of(work))
        engine.begin_epoch(0.0)
        lows = np.arange(work.warm + work.steps) * work.batch % examples.count
        for step, batch in enumerate(engine.batches(np.arange(low, low + work.batch) for low in lows)):
            if step == work.warm:
                before, began = engine.facts(), time.process_time()
            engine.run(batch)
            engine.failed()
        engine.failed(wait=True)
        job, after = time.process_time() - began, engine.facts()
    spent = [b["cpu"] - b["waited"] - a["cpu"] + a["waited"] for a, b in zip(before, after, strict=True)]
    print(json.dumps({"job": 1e3 * job / work.steps, "rank": 1e3 * max(spent) / work.steps}))


if __name__ == "__main__":
    main()
