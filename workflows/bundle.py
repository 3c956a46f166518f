"""Pack code into one `.pyz` that travels with the run: the same sources give the same bytes everywhere."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip can hold

MANAGER_MODULES = (
    "workflows/__init__.py",
    "workflows/constraints.py",
    "workflows/earlier.py",
    "workflows/endings.py",
    "workflows/errors.py",
    "workflows/firstpoint.py",
    "workflows/initial.py",
    "workflows/joblog.py",
    "workflows/journal.py",
    "workflows/machines.py",
    "workflows/names.py",
    "workflows/neighbours.py",
    "workflows/node.py",
    "workflows/observations.py",
    "workflows/plaintext.py",
    "workflows/promotion.py",
    "workflows/propose.py",
    "workflows/pruning.py",
    "workflows/regionspec.py",
    "workflows/report.py",
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
    "nnlib/__init__.py",
    "nnlib/contract.py",
)


@dataclass(frozen=True, slots=True)
class Archive:
    """A packed program: its file name, with a digest in it, and its bytes."""

    name: str
    content: bytes


def manager_archive() -> Archive:
    """Pack what PRE and POST run: standard library, and scikit-optimize where a model is fitted."""
    root = Path(str(files("workflows"))).parent
    return _archive("regiondag", "workflows.node", ((name, root / name) for name in MANAGER_MODULES))


def worker_archive() -> Archive:
    """Pack the whole of nnlib with its kernels, as jobs run it."""
    folder = Path(str(files("nnlib")))
    sources = {f"nnlib/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*.py")}
    packaged = folder / "kernels"
    beside = packaged if packaged.is_dir() else folder.parent / "kernels"
    kernels = {f"nnlib/kernels/{path.name}": path for path in beside.glob("*.cu*")}
    return _archive("nnlib", "nnlib.cli", (sources | kernels).items())


def _archive(name: str, module: str, sources: Iterable[tuple[str, Path]]) -> Archive:
    main = f"import sys\n\nfrom {module} import main\n\nsys.exit(main())\n"
    texts = {"__main__.py": main.encode(), **{path: source.read_bytes() for path, source in sources}}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(texts):
            archive.writestr(zipfile.ZipInfo(path, EPOCH), texts[path])
    content = buffer.getvalue()
    return Archive(f"{name}-{hashlib.sha256(content).hexdigest()[:12]}.pyz", content)
