"""`python -m regiondag` is `regiondag`; so is `python FOLDER`, with this one, where it is not installed."""

import sys

if not __package__:
    import importlib.util
    from pathlib import Path

    folder = Path(__file__).resolve().parent
    if Path(sys.path[0]).resolve() == folder:  # whose modules would hide others of their names
        del sys.path[0]
    sys.path.append(str(folder.parent))  # nnlib lies beside it
    spec = importlib.util.spec_from_file_location("regiondag", folder / "__init__.py")
    assert spec and spec.loader  # noqa: S101 (a file's spec has both)
    package = sys.modules["regiondag"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)

from regiondag.cli import main

sys.exit(main())
