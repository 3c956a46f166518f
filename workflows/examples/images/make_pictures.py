"""Draw signs as five cities photograph them: pictures/CITY/SIGN/NUMBER.ppm, the same ones every time.

Each city has a light, a background and a camera of its own. Oslo has many pictures, the others have few.

    python make_pictures.py [FOLDER] [--scale 0.5] [--seed 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SIDE, FINER = 40, 2  # pixels of a picture, and of what is drawn for each


@dataclass(frozen=True)
class City:
    """What the pictures of a city are like; colours and light are from 0 to 1."""

    pictures: int  # of each sign
    dark: bool  # signs are darker than what is behind them
    contrast: float
    noise: float
    stripes: float  # how strong those of the background are
    size: tuple[float, float]  # of signs, as shares of half a picture
    tint: tuple[float, float, float]


CITIES = {
    "Oslo": City(120, True, 0.5, 0.08, 0.0, (0.5, 0.8), (0.0, 0.0, 0.1)),
    "Lagos": City(30, False, 0.4, 0.12, 0.1, (0.45, 0.8), (0.15, 0.05, -0.1)),
    "Lima": City(30, False, 0.3, 0.10, 0.2, (0.4, 0.7), (-0.1, 0.05, 0.0)),
    "Perth": City(30, True, 0.35, 0.10, 0.25, (0.4, 0.8), (0.1, 0.0, -0.1)),
    "Kyoto": City(30, True, 0.3, 0.15, 0.05, (0.35, 0.6), (0.0, -0.05, 0.05)),
}


def _radius(u: Floats, v: Floats) -> Floats:
    return np.hypot(u, v)


def _largest(u: Floats, v: Floats) -> Floats:
    return np.maximum(np.abs(u), np.abs(v))


def _triangle(u: Floats, v: Floats) -> NDArray[np.bool_]:
    return (v < 0.5) & (0.87 * np.abs(u) * 2 - v < 0.95)


SIGNS: dict[str, Callable[[Floats, Floats], NDArray[np.bool_]]] = {
    "disc": lambda u, v: _radius(u, v) < 0.8,
    "ring": lambda u, v: (_radius(u, v) < 0.85) & (_radius(u, v) > 0.5),
    "square": lambda u, v: _largest(u, v) < 0.7,
    "frame": lambda u, v: (_largest(u, v) < 0.75) & (_largest(u, v) > 0.45),
    "triangle": _triangle,
    "cross": lambda u, v: (np.minimum(np.abs(u), np.abs(v)) < 0.22) & (_largest(u, v) < 0.85),
    "star": lambda u, v: _radius(u, v) < 0.58 + 0.3 * np.cos(5 * np.arctan2(v, u)),
    "moon": lambda u, v: (_radius(u, v) < 0.85) & (_radius(u - 0.4, v) > 0.65),
    "bar": lambda u, v: (np.abs(u) < 0.9) & (np.abs(v) < 0.25),
    "arrow": lambda u, v: (
        ((np.abs(u) < 0.2) & (v > 0) & (v < 0.9)) | ((v <= 0.1) & (np.abs(u) - v < 0.85) & (v > -0.8))
    ),
}


def draw(city: City, sign: str, random: np.random.Generator) -> NDArray[np.uint8]:
    """Return a picture (height, width, 3)."""
    grid = (np.arange(SIDE * FINER) + 0.5) / (SIDE * FINER) * 2 - 1
    x, y = np.meshgrid(grid, grid)
    behind = 0.5 + 0.25 * random.uniform(-1, 1) * x + 0.25 * random.uniform(-1, 1) * y
    angle = random.uniform(0, np.pi)
    behind += city.stripes * np.sin(random.uniform(8, 20) * (x * np.cos(angle) + y * np.sin(angle)))
    size, turn = random.uniform(*city.size), random.uniform(0, 2 * np.pi)
    left, top = random.uniform(-1, 1, 2) * (1 - size) * 0.8
    u, v = (x - left) / size, (y - top) / size
    mask = SIGNS[sign](np.cos(turn) * u + np.sin(turn) * v, np.cos(turn) * v - np.sin(turn) * u)
    difference = city.contrast * random.uniform(0.7, 1.3) * (-1 if city.dark else 1)
    light = (behind + difference * mask).reshape(SIDE, FINER, SIDE, FINER).mean(axis=(1, 3))
    colour = light[:, :, None] + np.array(city.tint) + random.uniform(-0.08, 0.08, 3)
    colour += city.noise * random.normal(size=colour.shape)
    picture: NDArray[np.uint8] = (255 * colour.clip(0, 1)).astype(np.uint8)
    return picture


def make(folder: Path, scale: float, seed: int) -> int:
    """Write all pictures; return how many."""
    count = 0
    for c, (name, city) in enumerate(CITIES.items()):
        for s, sign in enumerate(SIGNS):
            random = np.random.default_rng((seed, c, s))
            place = folder / name / sign
            place.mkdir(parents=True, exist_ok=True)
            for n in range(max(1, round(scale * city.pictures))):
                header = f"P6 {SIDE} {SIDE} 255\n".encode()
                (place / f"{n:03}.ppm").write_bytes(header + draw(city, sign, random).tobytes())
                count += 1
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw signs as five cities photograph them.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("pictures"), metavar="FOLDER")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of pictures (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="other pictures (default: 1)")
    arguments = parser.parse_args()
    print(f"{make(arguments.folder, arguments.scale, arguments.seed):,} pictures in {arguments.folder}")
