"""A study, from its folder: run it, look at its runs, ask what serves."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regiondag.api.champion import Champion
from regiondag.api.run import Run
from regiondag.errors import RegiondagError, UsageError
from regiondag.run.layout import RunFolder
from regiondag.run.lookup import find_region
from regiondag.run.study_folder import StudyFolder, check_free, find_study

if TYPE_CHECKING:
    from regiondag.api.function import Regions
    from regiondag.api.search import Search

Say = Callable[[str], None]
LOOK_EVERY = 2.0  # seconds, while `run` waits


@dataclass(frozen=True)
class Study:
    """A folder with a study.yaml, and its runs."""

    folder: StudyFolder

    @classmethod
    def load(cls, path: str | Path, runs: str | Path | None = None) -> Study:
        """Return the study in a folder, or of a study.yaml; `runs`: where its runs go, if not beside it.

        UsageError where there is none. What is wrong with study.yaml is said when it is run, or by `validate`.
        """
        found = find_study(Path(path), None if runs is None else Path(runs))
        return cls(StudyFolder(found.study, found.runs.resolve()))

    @classmethod
    def create(cls, folder: str | Path, data: str | Path, **wishes: str) -> Study:
        """Look at a table, write its study into a new folder, as `regiondag init --data` does, and return that.

        `wishes` name columns (`region`, `customer`, `item`, `time`, `description`, `quantity`), `one_region`, or how
        texts are to be read (`separator`, `encoding`, `dates`, `decimal`); what they leave open is guessed. `data` may
        be the URL of a database, with `table` or `query`, and where its password is kept: `password="env:NAME"`.
        UsageError for a folder that is not free or another word, DataError for what is wrong with the table or cannot
        be told.
        """
        from nnlib.importing.sniffing.look import Wishes
        from regiondag.config.keys import DATA_COLUMNS, FORMAT
        from regiondag.newstudy.database import look_at_database, name_database
        from regiondag.newstudy.look import find_memory, look_at_table
        from regiondag.newstudy.write import name_study, write_study

        place = Path(folder)
        database = None
        if "://" in str(data):
            table, query, password = (wishes.pop(name, None) for name in ("table", "query", "password"))
            database = name_database(str(data), table, query, password)
        legal = (*DATA_COLUMNS, *FORMAT, "one_region")
        if unknown := sorted(wishes.keys() - set(legal)):
            raise UsageError(f"{unknown[0]!r} says nothing of a table, legal: {', '.join(legal)}")
        check_free(place)
        columns = {meaning: wishes[meaning] for meaning in DATA_COLUMNS if meaning in wishes}
        if "one_region" in wishes:
            columns["region"] = ""
        named = wishes.get("one_region") or name_study(place)
        separator, encoding, dates, decimal = (wishes.get(key, "") for key in FORMAT)
        wanted = Wishes(columns, named, separator, encoding, dates, decimal)
        look_at_file = partial(look_at_table, wishes=wanted)
        look = look_at_database(database, look_at_file) if database else look_at_file(Path(data))
        write_study(place, look, find_memory(), database)
        return cls.load(place)

    @classmethod
    def from_function(
        cls,
        function: Callable[..., object],
        *,
        regions: Regions,
        space: Mapping[str, object],
        metric: str | Mapping[str, object],
        mode: str = "max",
        files: Sequence[str | Path] = (),
        folder: str | Path | None = None,
        **sections: object,
    ) -> Study:
        """Write a study whose trials call a function, and return it. The file that the function is in goes with jobs.

        The function gets what it has parameters for: the hyperparameters of `space`, and `region`, `trial`, `role`,
        `seed`, `epochs`, `seconds`, `metric`, and the folders `checkpoint` and `artifact`. It returns the metric, of
        which more is better unless `mode` is min, or a dict of figures with the metric among them, or nothing where it
        has reported it by `regiondag.trial.report`. `metric` is its name, or all of `trainer.metric`.

        `regions` are names, or a pattern such as `data/*.csv`: one for each file. `files` go with the job, too, and
        may have {region} in their names. `sections` are others of study.yaml, such as `search`, `train`, `job`, and
        `study`, its name. Paths begin at `folder`, in which study.yaml is written (default: the function's own). Called
        again it writes the file anew, unless somebody has changed that.

        UsageError for a function that no file has, and for a study.yaml that is somebody's own; ConfigError has every
        mistake in the rest.
        """
        from regiondag.api.function import adding, find_source, named_regions, write_study_of

        source = find_source(function)
        judge = {"mode": mode, **metric} if isinstance(metric, Mapping) else {"name": metric, "mode": mode}
        trainer = adding(sections.get("trainer", {}), metric=judge)
        search = adding(sections.get("search", {}), space=space)
        own = {"regions": named_regions(regions), "trainer": trainer, "search": search}
        whole = {**own, **sections, **own}  # in this order
        place = source.file.parent if folder is None else Path(folder)
        return cls.load(write_study_of(source, place, whole, [os.fspath(one) for one in files]))

    def __repr__(self) -> str:
        """Say which one it is."""
        return f"<Study {self.name!r} in {self.folder.study.parent}>"

    @property
    def name(self) -> str:
        """What study.yaml calls it."""
        return self.folder.name

    def validate(self) -> list[str]:
        """Read study.yaml and all data; return what is worth knowing. ConfigError has every mistake with its line."""
        from regiondag.config.load_checked import load_checked

        return list(load_checked(self.folder.study).notes)

    def run(self, *, detach: bool = False, new: bool = False, pool: str | None = None, say: Say = print) -> Run:
        """Do all that is left to do, as `regiondag run` does, and return the run.

        `detach`: do not wait for its end. `new`: make a new run even where nothing is new. `say` is called with each
        step and with what has happened on the way. Raises the error of the step that failed; called again it goes on
        from there. Regions without a champion are no error: `run.report()` says why.
        """
        from regiondag.pipeline.run_study import Outlet, Wishes, run_study

        call = f"Study.load({str(self.folder.study.parent)!r}).run()"
        outlet = Outlet(lambda step, text: say(f"{step}: {text}"), say, say, lambda _run, _status: LOOK_EVERY)
        outcome = run_study(self.folder, Wishes(pool, anew=new, detach=detach, call=call), outlet)
        return Run(RunFolder(Path(outcome.run)), pool)

    def search(self, region: str, path: str | Path) -> Search:
        """Return the search of a region, for trials that you run yourself, by `ask` and `tell`; it is kept in `path`.

        Its space, method, constraints, seed and metric are those of study.yaml, once for all; its runs take no part.
        UsageError for a region that is searched for a model of nnlib's families.
        """
        from regiondag.api.plain import written_space
        from regiondag.api.search import Search
        from regiondag.config.load import load_config

        config = load_config(self.folder.study)
        slug = find_region({one.slug: one.name for one in config.regions}, region)
        found = next(one for one in config.regions if one.slug == slug)
        search, metric = found.search, found.metric
        if search.of_families:
            raise UsageError(
                f"{found.name}: its trials are nnlib's own families; legal: a region with `trainer` or `network`"
            )
        return Search(
            written_space(search.space),
            path,
            metric=metric.name,
            mode="min" if metric.minimize else "max",
            method=search.method,
            constraints=search.constraints,
            acquisition=search.acquisition,
            trials=search.trials,
            seed=found.train.seed,
        )

    def runs(self) -> list[Run]:
        """Return its runs, the newest first."""
        return [Run(folder) for folder in self.folder.list_runs()]

    def newest_run(self) -> Run:
        """Return the run that was made last; RegiondagError where there is none."""
        return Run(self.folder.newest_run())

    def champion(self, region: str) -> Champion:
        """Return what serves a region now; RegiondagError where nothing does."""
        from regiondag.recommend.region import Served

        served = Served(self.folder.runs, self.name)
        slug = find_region(served.regions, region)
        current = served.registry.current(slug)
        if current is None:
            raise RegiondagError(f"nothing serves the region {region!r} yet")
        return Champion(current, served)

    def champions(self, library: str = "pandas") -> Any:
        """Return what serves each region as a DataFrame: version, run, when, recipe and test metrics."""
        from regiondag.recommend.region import Served
        from regiondag.util.frames import make_frame

        served = Served(self.folder.runs, self.name)
        found = [one for slug in served.registry.regions() if (one := served.registry.current(slug))]
        known = ("region", "version", "run", "promoted", "pinned", "recipe")
        rows = []
        for one in found:
            champion = Champion(one, served)
            about = {name: getattr(one, name) for name in known[:-1]}
            rows.append({**about, "recipe": champion.recipe, **champion.metrics})
        metrics = dict.fromkeys(name for row in rows for name in row if name not in known)
        return make_frame(rows, [*known, *metrics], library)
