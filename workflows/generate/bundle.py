"""Pack code into one `.pyz` that travels with the run: the same sources give the same name everywhere."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from regiondag.generate.compiled import CODES_FILE, compile_module, compile_start, list_taken
from regiondag.report.page_shell import page_parts
from regiondag.run.layout import PAGE_LIBRARY

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip can hold

# What PRE and POST import, by package or module: the rest of regiondag stays with the user.
MANAGER_CODE = (
    "nnlib.confusion",
    "nnlib.contract",
    "nnlib.epoch_log",
    "nnlib.plain_file",
    "nnlib.progress",
    "nnlib.spec.checks",
    "nnlib.spec.json_section",
    "nnlib.spec.metric_names",
    "nnlib.util.files",
    "nnlib.util.memory",
    "nnlib.util.os_errors",
    "regiondag.accounting",
    "regiondag.audit.lost_records",
    "regiondag.champions",
    "regiondag.condor.events",
    "regiondag.condor.quoting",
    "regiondag.errors",
    "regiondag.node",
    "regiondag.notify",
    "regiondag.registry.journal",
    "regiondag.registry.promote",
    "regiondag.registry.read",
    "regiondag.report",
    "regiondag.run",
    "regiondag.study",
    "regiondag.trainers.jobs",
    "regiondag.trials.dependence",
    "regiondag.trials.rows",
    "regiondag.tuning",
    "regiondag.util.digests",
    "regiondag.util.intervals",
    "regiondag.util.one_thread",
    "regiondag.util.schema",
    "regiondag.util.secrets",
    "regiondag.util.text",
    "regiondag.util.yaml_file",
)

# What the scripts of each trial import, and only some of them NumPy.
OFTEN = (
    "regiondag.node.journal_mark",
    "regiondag.node.post",
    "regiondag.node.pre",
    "regiondag.node.proposing",
    "regiondag.tuning.gp.ask",
)

# What PRE and POST of recommendations for all customers import.
RECOMMEND_CODE = (
    "nnlib.confusion",
    "nnlib.contract",
    "nnlib.plain_file",
    "nnlib.util.files",
    "nnlib.util.os_errors",
    "regiondag.errors",
    "regiondag.node.start",
    "regiondag.recommend.batch",
    "regiondag.recommend.node",
    "regiondag.run.layout",
    "regiondag.run.manager_log",
)


@dataclass(frozen=True, slots=True)
class Archive:
    """A packed program: its file name, with a digest of its sources in it, and its bytes."""

    name: str
    content: bytes


def pack_manager(earlier: Iterable[Path] = ()) -> Archive:
    """Pack what PRE and POST run: standard library, and scikit-optimize where a model is fitted.

    The report's page comes along, unless plotly is neither installed nor in one of the `earlier` runs' archives.
    """
    sources = {name: path.read_bytes() for name, path in list_manager_files().items()}
    return _archive_scripts("regiondag.node.main", sources, page_parts(earlier), OFTEN)


def pack_recommend() -> Archive:
    """Pack what PRE and POST of recommendations for all customers run: the standard library has to do."""
    sources = {name: path.read_bytes() for name, path in list_manager_files(RECOMMEND_CODE).items()}
    return _archive_scripts("regiondag.recommend.node", sources, {}, ())


def list_manager_files(code: Iterable[str] = MANAGER_CODE) -> dict[str, Path]:
    """Return the files of `code` by their names in the archive, and what makes packages of their folders."""
    found: dict[str, Path] = {}
    for name in code:
        package, *inside = name.split(".")
        top = Path(str(files(package)))
        place = top.joinpath(*inside)
        own = [file for kind in ("*.py", "*.yaml") for file in place.rglob(kind)] or [place.with_suffix(".py")]
        above = [top.joinpath(*inside[:depth], "__init__.py") for depth in range(len(inside))]
        found |= {f"{package}/{file.relative_to(top).as_posix()}": file for file in (*own, *above)}
    return found


def archives_of(runs: Path) -> list[Path]:
    """Return the managers' archives of the runs in a folder, those of the newest run first."""
    return sorted(runs.glob("run-*/regiondag-*.pyz"), reverse=True)


def has_page(run: Path) -> bool:
    """Return whether the archive of a run directory can write the report's page."""
    [path] = run.glob("regiondag-*.pyz")
    with zipfile.ZipFile(path) as archive:
        return PAGE_LIBRARY in archive.namelist()


def pack_worker() -> Archive:
    """Pack the whole of nnlib with its kernels, as jobs run it."""
    folder = Path(str(files("nnlib")))
    sources = {f"nnlib/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*.py")}
    packaged = folder / "kernels"
    beside = packaged if packaged.is_dir() else folder.parent / "kernels"
    kernels = {f"nnlib/kernels/{path.name}": path for path in beside.glob("*.cu*")}
    main = b"import sys\n\nfrom nnlib.cli import main\n\nsys.exit(main())\n"
    texts = {name: path.read_bytes() for name, path in (sources | kernels).items()}
    return _archive("nnlib", {"__main__.py": main, **texts})


def _archive_scripts(
    program: str, sources: Mapping[str, bytes], others: Mapping[str, bytes], often: tuple[str, ...]
) -> Archive:
    """Pack what DAGMan's scripts run. Thousands would each compile it anew: another Python passes that over."""
    inside = dict(sources)
    start = inside.pop("regiondag/node/start.py")
    texts = {"__main__.py": start + f'\n\nstart("{program}", "{CODES_FILE}")\n'.encode(), **inside}
    modules = {f"{name}c": compile_module(name, text) for name, text in texts.items() if name.endswith(".py")}
    codes = compile_start(_zip(texts | modules), (program, *often))
    taken = list_taken(codes)
    rest = {name: code for name, code in modules.items() if name.removesuffix("c") not in taken}
    return _archive("regiondag", {**texts, **others}, {**rest, CODES_FILE: codes})


def _archive(name: str, texts: Mapping[str, bytes], compiled: Mapping[str, bytes] | None = None) -> Archive:
    plain = _zip(texts)
    digest = hashlib.sha256(plain).hexdigest()[:12]
    return Archive(f"{name}-{digest}.pyz", _zip({**texts, **compiled}) if compiled else plain)


def _zip(contents: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(contents):
            archive.writestr(zipfile.ZipInfo(path, EPOCH), contents[path])
    return buffer.getvalue()
