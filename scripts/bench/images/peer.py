"""PyTorch's DataLoader with Pillow and PyTorch's operations, each for a process of its own.

`decode FOLDER whole|draft CORES` reads pictures into one array of bytes; `epochs JSON` prepares changed batches. Both
print the processor time, of worker processes, too, and the wall time.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

CLASSES, BATCH, SIDE = 10, 128, 64


class Files:
    """Pictures in files, resized and cropped as torchvision's Resize and CenterCrop do."""

    def __init__(self, folder: Path, draft: bool) -> None:
        self.paths, self.draft = sorted(folder.glob("*/*/*.jpg")), draft

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, n: int) -> Any:
        import numpy as np
        from PIL import Image

        with Image.open(self.paths[n]) as picture:
            if self.draft:
                picture.draft("RGB", (2 * SIDE, 2 * SIDE))
            whole = picture.convert("RGB")
        scale = SIDE / min(whole.size)
        small = whole.resize([round(scale * side) for side in whole.size], Image.Resampling.BILINEAR)
        left, top = ((side - SIDE) // 2 for side in small.size)
        cropped = small.crop((left, top, left + SIDE, top + SIDE))
        return torch.from_numpy(np.asarray(cropped).copy()).permute(2, 0, 1)


class Pictures:
    """Pictures in memory, each changed as torchvision's RandomCrop, RandomHorizontalFlip and ColorJitter do."""

    def __init__(self, count: int, how: dict[str, Any]) -> None:
        generator = torch.Generator().manual_seed(1)
        self.values = torch.randint(0, 256, (count, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
        self.classes = torch.randint(0, CLASSES, (count,), generator=generator)
        self.how = how

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, n: int) -> Any:
        crop, colour = self.how.get("Crop", 0), self.how.get("Colour", 0.0)
        picture = self.values[n].float().div_(256)
        picture = torch.nn.functional.pad(picture[None], (crop, crop, crop, crop), mode="reflect")[0]
        top, left = torch.randint(0, 2 * crop + 1, (2,)).tolist()
        picture = picture[:, top : top + SIDE, left : left + SIDE]
        if self.how.get("Flip") and torch.rand(()) < 0.5:
            picture = picture.flip(-1)
        if colour:
            brightness, contrast, saturation = (1 + colour * (2 * torch.rand(3) - 1)).tolist()
            grey = (picture * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(0, keepdim=True)
            picture = (picture * saturation + grey * (1 - saturation)).clamp_(0, 1)
            picture = (picture * contrast + grey.mean() * (1 - contrast)).clamp_(0, 1)
            picture = (picture * brightness).clamp_(0, 1)
        return picture - 0.5, self.classes[n]


def mix(inputs: Any, classes: Any, alpha: float) -> Any:
    """Return a batch mixed with itself in another order, a share for each picture."""
    targets = torch.nn.functional.one_hot(classes, CLASSES).float()
    if alpha:
        share = torch.distributions.Beta(alpha, alpha).sample((len(inputs),))
        order = torch.randperm(len(inputs))
        inputs = torch.lerp(inputs[order], inputs, share[:, None, None, None])
        targets = torch.lerp(targets[order], targets, share[:, None])
    return inputs, targets


def spent() -> float:
    """Return the processor time of this process and of those that it started and that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def decode(folder: Path, draft: bool, cores: int) -> None:
    begin = spent(), time.perf_counter()
    found = torch.cat(list(DataLoader(Files(folder, draft), batch_size=BATCH, num_workers=cores)))
    found.numpy().tofile(folder / "all.raw")
    (folder / "all.raw").unlink()
    print(json.dumps({"cpu": spent() - begin[0], "wall": time.perf_counter() - begin[1]}))


def epochs(pictures: int, epochs: int, cores: int, how: dict[str, Any]) -> None:
    loader = DataLoader(Pictures(pictures, how), batch_size=BATCH, shuffle=True, num_workers=cores)
    begin = spent(), time.perf_counter()
    for _ in range(epochs):
        for inputs, classes in loader:
            mix(inputs, classes, how.get("Mixup", 0.0))
    print(json.dumps({"cpu": (spent() - begin[0]) / epochs, "wall": (time.perf_counter() - begin[1]) / epochs}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    what, *words = sys.argv[1:]
    if what == "decode":
        decode(Path(words[0]), words[1] == "draft", int(words[2]))
    else:
        epochs(**json.loads(words[0]))
