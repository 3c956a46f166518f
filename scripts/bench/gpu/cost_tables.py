"""What fine-tuning costs by GPUs and batch: what is predicted, and what others published beside it. Pure.

Predicted is a training whose batch is cut by examples, each GPU having a batch of its own, as predict.py and level 3's
model of a sum say; nnlib's own way, eight shards of one batch, has not met GPUs yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nnlib.inspection.scaling import Machine
from nnlib.shards.tree import RANKS
from regiondag.accounting.prices import PriceTable
from scripts.bench.common.harness import number
from scripts.bench.common.pictures import RESNET_50, RESNET_152
from scripts.bench.gpu.instances import GPUS, Share, cheapest_share
from scripts.bench.gpu.pictures import QUICK, RATE, parameters_of
from scripts.bench.gpu.predict import step_seconds
from scripts.bench.gpu.work import GpuWork
from scripts.bench.level3.predict import K80, sum_seconds

PREDICTED = "costs_predicted"
IMAGES, EPOCHS = 15_240, 6  # Caltech-256's training part and the epochs of 2017
BATCHES = (16, 64)  # of a GPU: the least and the most that were published
HEADINGS = ("GPU", "GPUs", "instance", "batch", "images/s", "efficiency", "minutes", "on demand", "spot")
PUBLISHED_HEADINGS = (
    *("network", "GPU", "GPUs", "batch", "published", "roofline", "published of it"),
    *("with what nnlib unfolds", "published of it"),
)
V100 = GPUS["p3"].machine


@dataclass(frozen=True)
class Published:
    """Images a second that somebody has published, of a batch on each GPU."""

    network: str
    machine: Machine
    gpus: int
    batch: int
    images: float


# BEEVA: https://github.com/beeva-enriqueotero/beeva-poc-mxnet, README_caltech256.md and README_caltech256_cleaner.md at
# 3b591c2 (2 January 2018). MXNet fine-tunes all layers on Caltech-256; p2.8xlarge (K80), p3.2xlarge, p3.8xlarge.
PUBLISHED = (
    Published(RESNET_152, K80, 1, 16, 18.9),
    Published(RESNET_152, K80, 1, 32, 19.8),
    Published(RESNET_152, K80, 8, 16, 151),
    Published(RESNET_152, K80, 8, 32, 157.5),
    Published(RESNET_50, K80, 1, 16, 48),
    Published(RESNET_50, K80, 8, 16, 360),
    Published(RESNET_152, V100, 1, 16, 104),
    Published(RESNET_152, V100, 1, 32, 131),
    Published(RESNET_152, V100, 4, 16, 410),
    Published(RESNET_152, V100, 4, 32, 520),
    Published(RESNET_50, V100, 1, 16, 260),
    Published(RESNET_50, V100, 1, 64, 335),
    Published(RESNET_50, V100, 4, 16, 1010),
    Published(RESNET_50, V100, 4, 64, 1340),
)


@dataclass(frozen=True)
class Job:
    """What is trained: so many images, so often."""

    images: int = IMAGES
    epochs: int = EPOCHS

    @property
    def seen(self) -> int:
        """Images of all epochs."""
        return self.images * self.epochs


@dataclass(frozen=True)
class Speed:
    """Images a second of some GPUs with a batch each, together, and of one of them alone."""

    family: str | None  # of instances; None: none has this GPU
    gpu: str
    gpus: int
    batch: int
    rate: float
    alone: float

    @property
    def efficiency(self) -> float:
        """How much of so many times one GPU's rate it is."""
        return self.rate / (self.gpus * self.alone)


def works(quick: bool = False) -> list[GpuWork]:
    """Return ResNet-50 with each batch; or a small one of small images."""
    if quick:
        return [GpuWork(RESNET_50, rate=RATE, **QUICK)]
    return [GpuWork(RESNET_50, batch=batch, batches=4, steps=8, warm=8, rate=RATE) for batch in BATCHES]


def images_per_second(work: GpuWork, machine: Machine, gpus: int, unfolded: bool = True) -> float:
    """Return what is predicted of GPUs that sum their gradients after each step, nothing of it hidden."""
    seconds = step_seconds(work, machine, unfolded) + sum_seconds(machine, parameters_of(work), gpus)
    return gpus * work.batch / seconds


def predicted_speeds() -> Iterator[Speed]:
    """Yield what is predicted of every GPU, of numbers of them, and of batches."""
    for family, gpu in GPUS.items():
        for gpus in RANKS:
            for work in works():
                rates = (images_per_second(work, gpu.machine, count) for count in (gpus, 1))
                yield Speed(family, gpu.name, gpus, work.batch, *rates)


def cells(speed: Speed, share: Share | None, job: Job, at_once: int = 1) -> tuple[str, ...]:
    """Return a row of the table: minutes and costs are of one training, of which so many run at once."""
    hours = job.seen / speed.rate / 3600  # of all GPUs, for one training
    costs = [hours * price for price in (share.on_demand, share.spot)] if share else [None, None]
    rate = f"{speed.rate:,.0f}", f"{speed.efficiency:.2f}", number(60 * hours * at_once)
    where = (f"{speed.gpus} of {share.of}", share.instance) if share else (str(speed.gpus), "-")
    return speed.gpu, *where, str(speed.batch), *rate, *(number(cost) for cost in costs)


def predicted_rows(prices: PriceTable, job: Job) -> list[tuple[str, ...]]:
    """Return the table of what is predicted, where there are instances with so many GPUs."""
    priced = ((speed, cheapest_share(prices, speed.family or "", speed.gpus)) for speed in predicted_speeds())
    return [cells(speed, share, job) for speed, share in priced if share]


def published_rows() -> list[tuple[str, ...]]:
    """Return what was published beside what the model says, without unfolding, which cuDNN does not need, and with."""
    rows = []
    for one in PUBLISHED:
        work = GpuWork(one.network, batch=one.batch)
        said = [images_per_second(work, one.machine, one.gpus, unfolded) for unfolded in (False, True)]
        parts = [cell for images in said for cell in (f"{images:,.0f}", f"{one.images / images:.2f}")]
        name = one.machine.name.partition(",")[0]
        rows.append((one.network, name, str(one.gpus), str(one.batch), f"{one.images:,g}", *parts))
    return rows


def about_of(prices: PriceTable, job: Job) -> str:
    """Say what minutes and costs are of."""
    what = f"{RESNET_50}, all layers learn, float32, {job.epochs} epochs of {job.images:,} images"
    return f"{what}; {prices.currency}: {prices.source}, {prices.date}"


def to_keep(prices: PriceTable, job: Job) -> dict[str, Any]:
    """Return the form in which predictions are kept."""
    predicted = {"about": about_of(prices, job), "headings": HEADINGS, "rows": predicted_rows(prices, job)}
    published = {"about": "images/s of MXNet, BEEVA 2018", "headings": PUBLISHED_HEADINGS, "rows": published_rows()}
    return {"bench": PREDICTED, "predicted, not measured": predicted, "published, not by us": published}
