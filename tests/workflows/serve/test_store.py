"""Champions are loaded beside the old ones; what cannot be loaded takes nothing out of service."""

import threading
import time
from dataclasses import dataclass

import pytest

from regiondag.registry.promote import pin, roll_back
from regiondag.serve import store as store_module
from regiondag.serve.store import NotLoadedError, Place, Store, describe
from tests.workflows.registry.registered import NIGHTS, promote, registry_of

EACH = 4 << 20


@dataclass
class Opener:
    """Opens champions of texts; `broken` versions raise."""

    broken: dict
    opened: list
    gate: threading.Event | None = None

    def __call__(self, runs, study, slug):
        if self.gate:
            assert self.gate.wait(30)
        champion = registry_of(runs).current(slug)
        if champion.version in self.broken:
            raise self.broken[champion.version]
        self.opened.append((slug, champion.version))
        return champion, f"recommender of {slug} {champion.version}"


class Made:
    def __init__(self, runs, memory=1 << 40):
        self.said, self.loads, self.opener = [], [], Opener({}, [])
        self.store = Store([Place(runs, "shop")], memory, self.opener, self.said.append, self.loads.append)

    def region(self, slug="berg"):
        return self.store.regions["shop", slug]

    def version(self, slug="berg"):
        serving = self.region(slug).serving
        return serving and serving.champion.version


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def test_what_is_in_office_serves_and_its_successor_takes_its_place(made, tmp_path):
    made.store.look()
    assert made.store.regions == {}
    promote(tmp_path, NIGHTS[0])
    made.store.look()
    before = made.region().serving
    assert before.recommender == f"recommender of berg {NIGHTS[0]}"
    promote(tmp_path, NIGHTS[1])
    promote(tmp_path, NIGHTS[0], "tal")
    made.store.look()
    assert made.version() == NIGHTS[1] and made.version("tal") == NIGHTS[0]
    assert before.champion.version == NIGHTS[0]  # whoever is at it ends with what he began with
    roll_back(registry_of(tmp_path), {"berg": NIGHTS[0]})
    made.store.look()
    assert made.version() == NIGHTS[0]
    made.store.look()
    assert len(made.opener.opened) == 4 and made.loads == [True] * 4


def test_a_pinned_champion_stays_and_is_asked_with_the_new_nights_histories(made, tmp_path):
    promote(tmp_path, NIGHTS[0])
    pin(registry_of(tmp_path), "berg")
    made.store.look()
    before = made.region().serving
    promote(tmp_path, NIGHTS[1])
    made.store.look()
    made.store.look()
    assert made.version() == NIGHTS[0] and made.region().serving is not before
    assert made.opener.opened == [("berg", NIGHTS[0])] * 2


def test_a_champion_that_cannot_be_loaded_leaves_the_old_one(made, tmp_path, monkeypatch):
    promote(tmp_path, NIGHTS[0])
    made.store.look()
    made.opener.broken[NIGHTS[1]] = ValueError("torn\x1b[2J\nin the middle")
    promote(tmp_path, NIGHTS[1])
    made.store.look()
    made.store.look()
    assert made.version() == NIGHTS[0] and made.region().state == "serving"
    assert made.region().problem == "torn [2J"
    assert made.loads == [True, False]  # it is not tried every second
    assert [line for line in made.said if "cannot be loaded; 20260101-033000 goes on" in line]
    del made.opener.broken[NIGHTS[1]]
    later = time.monotonic() + 60
    monkeypatch.setattr(store_module.time, "monotonic", lambda: later)
    made.store.look()
    assert made.version() == NIGHTS[1] and made.region().problem == ""


def test_a_rollback_ends_the_trouble_at_once(made, tmp_path):
    promote(tmp_path, NIGHTS[0])
    made.store.look()
    made.opener.broken[NIGHTS[1]] = MemoryError()
    promote(tmp_path, NIGHTS[1])
    made.store.look()
    assert made.region().problem == "MemoryError"
    roll_back(registry_of(tmp_path), {"berg": NIGHTS[0]})
    made.store.look()
    assert made.version() == NIGHTS[0] and made.region().problem == ""


def test_another_version_is_tried_although_the_last_one_failed(made, tmp_path):
    made.opener.broken[NIGHTS[0]] = OSError("gone")
    promote(tmp_path, NIGHTS[0])
    made.store.look()
    assert made.region().state == "failed"
    promote(tmp_path, NIGHTS[1])
    made.store.look()
    assert made.version() == NIGHTS[1]


def test_a_damaged_model_does_not_serve(made, tmp_path, monkeypatch):
    champion = promote(tmp_path, NIGHTS[0])
    made.store.look()
    (champion.folder.parent / "current").unlink()
    made.store.look()
    assert made.version() == NIGHTS[0] and "no champion is in office any more" in made.region().problem
    (champion.folder.parent / "current").symlink_to("20990101-000000")
    made.store.look()
    assert made.version() == NIGHTS[0] and "there is no such version" in made.region().problem


def test_an_unreadable_registry_is_told_once_and_changes_nothing(made, tmp_path, monkeypatch):
    promote(tmp_path, NIGHTS[0])
    made.store.look()
    path = registry_of(tmp_path).path
    path.rename(tmp_path / "elsewhere")
    path.write_text("")
    for _ in range(3):
        made.store.look()
    assert made.version() == NIGHTS[0]


def test_regions_are_found_by_name_and_slug_and_study(made, tmp_path):
    promote(tmp_path, NIGHTS[0])
    made.store.look()
    assert made.store.find("berg") == made.store.find("Berg") == made.store.find("Berg", "shop") == [made.region()]
    assert made.store.find("BERG") == made.store.find("berg", "other") == made.store.find("") == []


def test_without_room_the_first_stay_and_others_are_loaded_when_they_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "LEAST_BYTES", EACH)
    made = Made(tmp_path, memory=2 * EACH)
    for slug in ("aa", "bb", "cc"):
        promote(tmp_path, NIGHTS[0], slug, model=slug * EACH)
    made.store.look()
    assert [made.region(slug).state for slug in ("aa", "bb", "cc")] == ["serving", "waiting", "waiting"]
    made.region("aa").used = 5.0
    for slug, used in (("bb", 6.0), ("cc", 7.0)):
        wanted = [made.store.want(made.region(slug)) for _ in range(3)]
        made.region(slug).used = used
        made.store._load_asked()
        assert {one.result(0) for one in wanted} == {made.region(slug).serving}
    assert [made.region(slug).state for slug in ("aa", "bb", "cc")] == ["waiting", "serving", "serving"]
    assert [slug for slug, _ in made.opener.opened] == ["aa", "bb", "cc"]  # once each
    made.store.look()
    assert made.version("aa") is None  # nobody asks for it


def test_regions_that_share_a_model_are_loaded_together(tmp_path, monkeypatch):
    made = Made(tmp_path, memory=EACH + (2 << 20))
    for slug in ("aa", "bb", "cc"):
        promote(tmp_path, NIGHTS[0], slug, model="m" * EACH)
    made.store.look()
    assert [made.region(slug).state for slug in ("aa", "bb", "cc")] == ["serving"] * 3


def test_who_asks_for_what_cannot_be_loaded_is_told_why(made, tmp_path):
    made.opener.broken[NIGHTS[0]] = OSError("gone")
    promote(tmp_path, NIGHTS[0])
    made.store.look()
    wanted = made.store.want(made.region())
    made.store._load_asked()
    with pytest.raises(NotLoadedError, match="gone"):
        wanted.result(0)
    assert made.loads == [False]  # it failed a moment ago


def test_the_thread_loads_by_itself_and_ends(tmp_path):
    made = Made(tmp_path)
    promote(tmp_path, NIGHTS[0])
    made.store.start()
    deadline = time.monotonic() + 30
    while not made.store.regions or made.version() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    made.store.stop()
    made.store._thread.join(30)
    assert not made.store._thread.is_alive()


def test_errors_are_told_on_a_short_line():
    assert describe(ValueError("a\x07b\nc")) == "a b" and describe(KeyError()) == "KeyError"
    assert len(describe(ValueError("x" * 1000))) == 300
