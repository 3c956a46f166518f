"""The champions that are in memory: one that is promoted is loaded beside the old one and takes its place in one step.

One thread loads; all others only read what it has put there. A champion that cannot be loaded leaves the old one in
its place, and is tried again later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from regiondag.errors import RegiondagError
from regiondag.registry.read import CURRENT, Champion, open_registry, read_link
from regiondag.util.text import make_printable

if TYPE_CHECKING:
    from nnlib.prediction.recommender import Recommender

POLL_SECONDS = 1.0  # between two looks at what is in office
AGAIN_SECONDS = 30.0  # until a champion that could not be loaded is tried again
LEAST_BYTES = 1 << 20  # that a region counts for, whatever it shares with others
PAGE = 4096

Opener = Callable[[Path, str, str], "tuple[Champion, Recommender]"]


@dataclass(frozen=True, slots=True)
class Place:
    """A study by its name, and the folder of its runs."""

    runs: Path
    study: str


@dataclass(frozen=True, slots=True, eq=False)
class Serving:
    """A champion that answers, since when, how much memory it took, and which version was the newest then."""

    champion: Champion
    recommender: Recommender
    loaded: float
    size: int
    newest: str


@dataclass(slots=True, eq=False)
class Region:
    """A region and what serves it. The thread that loads writes, others read each field once."""

    place: Place
    slug: str
    name: str
    serving: Serving | None = None
    problem: str = ""  # why the champion in office does not serve
    failed: tuple[str, float] = ("", 0.0)  # the version that could not be loaded, and when to try it again
    used: float = 0.0
    newest: str = ""  # version in the registry: a pinned region's champion stays, but what customers have is new
    wanted: list[Future[Serving]] = field(default_factory=list)

    @property
    def state(self) -> str:
        """What it is at: serving, failed, or waiting to be loaded."""
        return "serving" if self.serving else "failed" if self.problem else "waiting"


class NotLoadedError(Exception):
    """A region cannot be served; the text says why."""


class Store:
    """All regions of some studies."""

    def __init__(
        self,
        places: Sequence[Place],
        memory: int,
        opener: Opener,
        say: Callable[[str], None],
        loaded: Callable[[bool], None],
    ) -> None:
        self._places, self._memory, self._open, self._say, self._loaded = tuple(places), memory, opener, say, loaded
        self.regions: dict[tuple[str, str], Region] = {}  # replaced, never changed: other threads read it
        self._journals: dict[Place, int] = {}  # when each registry's journal was written last
        self.listed = False  # whether all registries were looked at once
        self._slugs: dict[Place, list[str]] = {}  # as they were at the last look
        self._complaints: dict[str, str] = {}  # what is wrong with a study's registry, told once
        self._asked: deque[Region] = deque()
        self._lock = threading.Lock()  # of what was asked for
        self._something = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="champions", daemon=True)

    def start(self) -> None:
        """Begin to load and to look for promotions."""
        self._thread.start()

    def stop(self) -> None:
        """End that, after what is being loaded."""
        self._ended = True
        self._something.set()

    def find(self, text: str, study: str = "") -> list[Region]:
        """Return the regions of that name or slug, of one study or of all."""
        studies = [study] if study else [place.study for place in self._places]
        by_slug = [found for name in studies if (found := self.regions.get((name, text)))]
        return by_slug or [one for one in self.regions.values() if one.name == text and one.place.study in studies]

    def want(self, region: Region) -> Future[Serving]:
        """Have a region loaded that is not; the result is NotLoadedError where it cannot be."""
        wanted: Future[Serving] = Future()
        with self._lock:
            region.wanted.append(wanted)
            if region not in self._asked:
                self._asked.append(region)
        self._something.set()
        return wanted

    def _work(self) -> None:
        looked = -POLL_SECONDS
        while not self._ended:
            if time.monotonic() - looked >= POLL_SECONDS:
                self.look()
                looked = time.monotonic()
            self._something.wait(POLL_SECONDS / 2)
            self._something.clear()
            self._load_asked()

    def look(self) -> None:
        """Look once at what is in office everywhere, and load what is new as far as there is room."""
        for place in self._places:
            try:
                self._list(place)
                self._find_newest(place)
            except Exception as error:  # an unreadable registry takes nothing out of service
                self._complain(place.study, describe(error))
        self.listed = True
        for region in self.regions.values():
            if self._ended:
                return
            self._look_at(region)
            self._load_asked()

    def _list(self, place: Place) -> None:
        """Add the regions that are new; their files are read only then, as this is done every second."""
        registry = open_registry(place.runs, place.study)
        slugs = registry.slugs()
        if slugs == self._slugs.get(place):
            return
        for slug, name in registry.regions().items():
            if (place.study, slug) not in self.regions:
                self.regions = {**self.regions, (place.study, slug): Region(place, slug, name)}
        self._slugs[place] = slugs

    def _find_newest(self, place: Place) -> None:
        """Note each region's newest version, when the journal says that there may be others."""
        registry = open_registry(place.runs, place.study)
        written = registry.journal.stat().st_mtime_ns if registry.journal.exists() else 0
        if written == self._journals.get(place):
            return
        for region in self.regions.values():
            if region.place == place:
                region.newest = next(iter(registry.names(region.slug)), "")
        self._journals[place] = written

    def _look_at(self, region: Region) -> None:
        registry = open_registry(region.place.runs, region.place.study)
        try:
            version = read_link(registry.path / region.slug / CURRENT)
        except RegiondagError as error:
            self._fail(region, "", describe(error))
            return
        if version is None:
            region.problem = "no champion is in office any more" if region.serving else "no champion yet"
        elif region.serving and (region.serving.champion.version, region.serving.newest) == (version, region.newest):
            region.problem, region.failed = "", ("", 0.0)
        elif version == region.failed[0] and time.monotonic() < region.failed[1]:
            return
        elif region.serving or self._has_room(registry.try_version(region.slug, version)):
            self._load(region, version)
        else:
            region.problem = ""

    def _complain(self, study: str, why: str) -> None:
        if why != self._complaints.get(study):
            self._say(f"{study}: {why}")
        self._complaints[study] = why

    def _load_asked(self) -> None:
        while True:
            with self._lock:
                if not self._asked:
                    return
                region = self._asked.popleft()
                wanted, region.wanted = region.wanted, []
            if region.serving is None and time.monotonic() >= region.failed[1]:
                self._load(region, "")
            for one in wanted:
                if region.serving is not None:
                    one.set_result(region.serving)
                else:
                    one.set_exception(NotLoadedError(region.problem))

    def _load(self, region: Region, version: str) -> None:
        """Load what is in office; the old one serves until the new one is there."""
        before, newest, name = _resident(), region.newest, f"{region.place.study}/{region.slug}"
        try:
            champion, recommender = self._open(region.place.runs, region.place.study, region.slug)
        except Exception as error:  # whatever is wrong with a file, the other regions go on
            self._fail(region, version, describe(error))
            return
        size = max(_resident() - before, region.serving.size if region.serving else 0, LEAST_BYTES)
        region.serving, region.name = Serving(champion, recommender, time.time(), size, newest), champion.region
        region.problem, region.failed = "", ("", 0.0)
        self._loaded(True)
        self._say(f"{name}: {champion.version} serves")
        self._make_room(region)

    def _fail(self, region: Region, version: str, why: str) -> None:
        if (version, why) != (region.failed[0], region.problem):
            kept = f"; {region.serving.champion.version} goes on" if region.serving else ""
            self._say(f"{region.place.study}/{region.slug}: {version or 'champion'} cannot be loaded{kept}: {why}")
        region.problem, region.failed = why, (version, time.monotonic() + AGAIN_SECONDS)
        self._loaded(False)

    def _has_room(self, champion: Champion | None) -> bool:
        """Say whether a region may be loaded before anybody asks for it; a damaged one is tried. Models are shared."""
        loaded = [one.serving for one in self.regions.values() if one.serving]
        if champion is None or any(one.champion.sha256 == champion.sha256 for one in loaded):
            return True
        return sum(one.size for one in loaded) + champion.model.stat().st_size <= self._memory

    def _make_room(self, newest: Region) -> None:
        """Forget the regions that were not asked for the longest, until the others fit."""
        loaded = sorted((one for one in self.regions.values() if one.serving), key=lambda one: one.used)
        size = sum(one.serving.size for one in loaded if one.serving)
        for one in loaded:
            if size <= self._memory:
                return
            if one is not newest and one.serving:
                size -= one.serving.size
                one.serving = None
                self._say(f"{one.place.study}/{one.slug}: forgotten until it is asked for, to make room")


def describe(error: Exception) -> str:
    """Return an error on one line, bounded: what a damaged file says is somebody else's text."""
    return make_printable((str(error) or type(error).__name__).split("\n")[0], " ")[:300]


def _resident() -> int:
    """Return how many bytes this process has in memory; 0 where that cannot be asked."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return 0
