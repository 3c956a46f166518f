"""A study of families on a made-up table of purchases, and its run played without a pool: PRE, job and POST in turn."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from unittest.mock import patch

from nnlib.contract import Exit, trial_from_json
from nnlib.util.threads import BLAS_THREADS
from nnlib.worker.main import train
from regiondag.config.data_check import check_data, training_examples
from regiondag.config.load import load_config
from regiondag.generate.fresh_data import refresh_data
from regiondag.generate.write_run import create_run
from regiondag.node.post import JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.run.champions import earlier_runs, find_incumbents
from regiondag.run.layout import START_FOLDER, NodeName, RegionFolder, RunFolder
from regiondag.run.region_spec import read_spec
from regiondag.study.init import choose_init
from regiondag.study.model import POOLED

STUDY = """\
study: shop
data: {purchases: shop.csv}
families: [ease, knn, blend]
metric: ndcg@5
search: {rounds: 2, parallel: 4}
job: {gpus: 0, cpus: 1, memory: 256MB, disk: 100MB, requirements: "true"}
"""
REGIONS = {"Avon": 60, "Berg": 40, "Cove": 6, "Dale": 5}  # customers; those of Dale have too few purchases to be asked
SLUGS = ("avon", "berg", "cove", "dale")
ITEMS, DAYS = 24, 200
FIRST_DAY = date(2026, 1, 1)
FINAL = NodeName(POOLED, None)


def write_table(path: Path, seed: int = 1, liked: float = 0.9, regions: dict[str, int] | None = None) -> None:
    """Write purchases of customers who take what their half of the items holds; `liked` says how surely."""
    rng = random.Random(seed)
    lines = ["region,customer,item,date"]
    for region, customers in (regions or REGIONS).items():
        for customer in range(customers):
            taken = 3 if region == "Dale" else 14
            for _ in range(taken):
                half = customer % 2 if rng.random() < liked else 1 - customer % 2
                item = 2 * rng.randrange(ITEMS // 2) + half
                day = FIRST_DAY + timedelta(rng.randrange(DAYS))
                lines.append(f"{region},c{customer},i{item},{day}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_shop(folder: Path, text: str = STUDY, **table: float) -> Path:
    """Write the table and study.yaml; return the path of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "shop.csv", **table)
    (folder / "study.yaml").write_text(text, encoding="utf-8")
    return folder / "study.yaml"


def generate(study: Path) -> RunFolder:
    """Make a run as `regiondag generate` does, with the champions of the runs before."""
    refresh_data(study)
    asked = load_config(study)
    runs = study.parent / "runs"
    incumbents = find_incumbents(earlier_runs(runs, asked.name), [region.slug for region in asked.regions])
    config = choose_init(asked, training_examples(asked, check_data(asked)), incumbents)
    return create_run(config, runs, htcondor=(23, 9, 6), incumbents=incumbents, progress=lambda done, of: None)


def work(folder: RegionFolder, node: NodeName) -> int:
    """Run a node's job as a worker does, in a folder of its own; return its exit code."""
    place, sandbox = folder.trial(node), folder.path / "sandbox"
    trial = trial_from_json((place / "trial.json").read_text())
    served_by = read_spec(folder.spec).served_by
    source = folder.run.region(served_by) if served_by else folder
    shutil.copytree(place / START_FOLDER, sandbox)
    shutil.copyfile(place / "trial.json", sandbox / "trial.json")
    for name in trial.sha256:
        os.link(source.path / name, sandbox / name)
    with as_before():
        code = train(sandbox / "trial.json", device="cpu")
    for file in sandbox.iterdir():
        if file.name not in trial.sha256:
            shutil.copyfile(file, place / file.name)
    shutil.rmtree(sandbox)
    return code


@contextmanager
def as_before() -> Iterator[None]:
    """Have signal handlers and the environment as they were when a job in this process has ended."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    handlers = [signal.getsignal(number) for number in numbers]
    try:
        with patch.dict(os.environ, dict.fromkeys(BLAS_THREADS, "1")):
            yield
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)


def play_trial(folder: RegionFolder, node: NodeName) -> bool:
    """Play a trial; False where PRE says that it needs no job."""
    if not prepare_trial(folder, node):
        return False
    settle_trial(folder, node, JobEnd(work(folder, node), 0, 2))
    return True


def play_final(folder: RegionFolder, node: NodeName) -> bool:
    """Play a region's last job; False where PRE says that it needs none."""
    if not prepare_final(folder, node):
        return False
    code = work(folder, node)
    assert code == Exit.OK, (folder.trial(node) / "result.json").read_text()
    settle_final(folder, node, JobEnd(code, 0, 2))
    return True


def play_search(run: RunFolder, nodes: int = 9, slug: str = POOLED) -> None:
    """Play all trials of a search, the blend among them."""
    for number in range(nodes):
        play_trial(run.region(slug), NodeName(slug, number))


def play(run: RunFolder, slugs: Sequence[str] = SLUGS) -> None:
    """Play a whole run, as its graph has it."""
    play_search(run)
    play_final(run.region(POOLED), FINAL)
    for slug in slugs:
        play_final(run.region(slug), NodeName(slug, None))
