"""Our side, each for a process of its own.

`generate FOLDER COUNT` writes JPEGs in two regions and ten classes; `decode FOLDER OUT CORES` imports them;
`epochs JSON` prepares changed batches. The last two print the processor time of all threads and the wall time.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path

import numpy as np

CLASSES, BATCH, SIDE = 10, 128, 64


def generate(folder: Path, count: int) -> None:
    """Write pictures as smooth as photographs, with some noise."""
    from PIL import Image

    random = np.random.default_rng(1)
    for n in range(count):
        path = folder / f"region{n % 2}" / f"class{n // 2 % CLASSES}" / f"{n}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((640, 480), Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = smooth + random.integers(-8, 9, smooth.shape, dtype=np.int16)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=90)


def decode(folder: Path, out: Path, cores: int) -> None:
    """Make data files of all pictures."""
    from nnlib.importing.images.regions import import_images
    from nnlib.util.threads import workers

    begin = time.process_time(), time.perf_counter()
    with workers(cores) as each, contextlib.redirect_stdout(sys.stderr):
        import_images(folder, out, each)
    print(json.dumps({"cpu": time.process_time() - begin[0], "wall": time.perf_counter() - begin[1]}))


def epochs(pictures: int, epochs: int, cores: int, how: dict[str, object]) -> None:
    """Prepare the batches of some epochs as a training on processors does."""
    from nnlib.contract import TrainSettings
    from nnlib.cpu.backend import Cpu
    from nnlib.data.rows import Dense, one_hot
    from nnlib.data.sets import DataSet
    from nnlib.model.batches import WEIGHTS, batches_of, epoch_order, generator_for
    from nnlib.model.examples import examples_of, resolve
    from nnlib.model.network import create
    from nnlib.spec.network import parse_network
    from nnlib.util.threads import workers

    random = np.random.default_rng(1)
    values = random.integers(0, 256, (pictures, 3 * SIDE * SIDE), dtype=np.uint8)
    sets = {
        "input": DataSet("input", Dense(values), dimensions=(SIDE, SIDE, 3)),
        "output": DataSet("output", one_hot(random.integers(0, CLASSES, pictures), CLASSES)),
    }
    layers = [{"N": "auto", "DataSet": "input"}, {"N": "auto", "DataSet": "output", "Activation": "SoftMax"}]
    spec = resolve(parse_network({"Augmentation": how, "Layers": layers}, "n"), sets, "d")
    settings = TrainSettings(batch=BATCH)
    with workers(cores) as each:
        engine = Cpu(each).engine(create(spec, generator_for(1, WEIGHTS)), examples_of(spec, sets, "d"), settings)
        cpu = wall = 0.0
        for epoch in range(epochs + 1):  # the first one warms up
            order = epoch_order(1, epoch, pictures, True)
            begin = time.process_time(), time.perf_counter()
            for _ in engine.batches(order[low:high] for low, high in batches_of(pictures, BATCH)):
                pass
            if epoch:
                cpu, wall = cpu + time.process_time() - begin[0], wall + time.perf_counter() - begin[1]
    print(json.dumps({"cpu": cpu / epochs, "wall": wall / epochs}))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "generate":
        generate(Path(words[0]), int(words[1]))
    elif what == "decode":
        decode(Path(words[0]), Path(words[1]), int(words[2]))
    else:
        epochs(**json.loads(words[0]))
