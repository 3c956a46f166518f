"""Pack code into one `.pyz` that travels with the run: the same sources give the same name everywhere."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from workflows.names import PAGE_LIBRARY
from workflows.pageshell import page_parts

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip can hold

MANAGER_MODULES = (
    "workflows/__init__.py",
    "workflows/attempts.py",
    "workflows/constraints.py",
    "workflows/earlier.py",
    "workflows/endings.py",
    "workflows/errors.py",
    "workflows/eventfold.py",
    "workflows/eventleg.py",
    "workflows/eventlog.py",
    "workflows/eventtext.py",
    "workflows/firstpoint.py",
    "workflows/initial.py",
    "workflows/joblog.py",
    "workflows/journal.py",
    "workflows/machines.py",
    "workflows/names.py",
    "workflows/neighbours.py",
    "workflows/node.py",
    "workflows/observations.py",
    "workflows/page.py",
    "workflows/plaintext.py",
    "workflows/prices.yaml",
    "workflows/pricetable.py",
    "workflows/promotion.py",
    "workflows/propose.py",
    "workflows/pruning.py",
    "workflows/regionspec.py",
    "workflows/report.py",
    "workflows/reportdata.py",
    "workflows/reportfailures.py",
    "workflows/reportfigures.py",
    "workflows/reporttimeline.py",
    "workflows/runstart.py",
    "workflows/schema.py",
    "workflows/settle.py",
    "workflows/shape.py",
    "workflows/space.py",
    "workflows/standing.py",
    "workflows/study.py",
    "workflows/submit_syntax.py",
    "workflows/tuning/__init__.py",
    "workflows/tuning/acquisition.py",
    "workflows/tuning/bayes.py",
    "workflows/tuning/dispatch.py",
    "workflows/tuning/domain.py",
    "workflows/tuning/encoding.py",
    "workflows/tuning/gaussian.py",
    "workflows/tuning/minimise.py",
    "workflows/tuning/search.py",
    "workflows/tuning/sharing.py",
    "workflows/tuning/similarity.py",
    "workflows/tuning/skopt_method.py",
    "workflows/tuning/sobol.py",
    "workflows/tuning/told.py",
    "workflows/trialtable.py",
    "workflows/usage.py",
    "workflows/yamlfile.py",
    "nnlib/__init__.py",
    "nnlib/contract.py",
    "nnlib/oserror.py",
)


@dataclass(frozen=True, slots=True)
class Archive:
    """A packed program: its file name, with a digest of its sources in it, and its bytes."""

    name: str
    content: bytes


def manager_archive(earlier: Iterable[Path] = ()) -> Archive:
    """Pack what PRE and POST run: standard library, and scikit-optimize where a model is fitted.

    The report's page comes along, unless plotly is neither installed nor in one of the `earlier` runs' archives.
    """
    root = Path(str(files("workflows"))).parent
    sources = {name: (root / name).read_bytes() for name in MANAGER_MODULES}
    # Thousands of scripts would each compile these anew, for a third of their time. Another Python passes them over.
    compiled = {f"{name}c": _compiled(name, source) for name, source in sources.items() if name.endswith(".py")}
    return _archive("regiondag", "workflows.node", sources | page_parts(earlier), compiled)


def archives_of(runs: Path) -> list[Path]:
    """Return the managers' archives of the runs in a folder, those of the newest run first."""
    return sorted(runs.glob("run-*/regiondag-*.pyz"), reverse=True)


def has_page(run: Path) -> bool:
    """Return whether the archive of a run directory can write the report's page."""
    [path] = run.glob("regiondag-*.pyz")
    with zipfile.ZipFile(path) as archive:
        return PAGE_LIBRARY in archive.namelist()


def worker_archive() -> Archive:
    """Pack the whole of nnlib with its kernels, as jobs run it."""
    folder = Path(str(files("nnlib")))
    sources = {f"nnlib/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*.py")}
    packaged = folder / "kernels"
    beside = packaged if packaged.is_dir() else folder.parent / "kernels"
    kernels = {f"nnlib/kernels/{path.name}": path for path in beside.glob("*.cu*")}
    return _archive("nnlib", "nnlib.cli", {name: path.read_bytes() for name, path in (sources | kernels).items()})


def _archive(name: str, module: str, sources: Mapping[str, bytes], compiled: dict[str, bytes] | None = None) -> Archive:
    main = f"import sys\n\nfrom {module} import main\n\nsys.exit(main())\n"
    texts = {"__main__.py": main.encode(), **sources}
    plain = _zip(texts)
    digest = hashlib.sha256(plain).hexdigest()[:12]
    return Archive(f"{name}-{digest}.pyz", _zip(texts | compiled) if compiled else plain)


def _zip(contents: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(contents):
            archive.writestr(zipfile.ZipInfo(path, EPOCH), contents[path])
    return buffer.getvalue()


@cache
def _compiled(name: str, source: bytes) -> bytes:
    """Return what a .pyc of this Python holds that is valid whenever its source was written (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    unchecked = (1).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code)
