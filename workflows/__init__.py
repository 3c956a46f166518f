"""regiondag: one tuned, trained and tested model per region, as an ordinary HTCondor DAG.

import regiondag
run = regiondag.Study.load("shop").run()
run.champion("North").recommend("N001")
"""

TYPE_CHECKING = False  # as type checkers know it: scripts of DAGMan's start without `typing`
if TYPE_CHECKING:
    from regiondag.api.champion import Champion
    from regiondag.api.run import Run
    from regiondag.api.search import Search
    from regiondag.api.study import Study

__version__ = "0.1.0"
__all__ = ["Champion", "Run", "Search", "Study", "__version__"]

_HOMES = {"Champion": "champion", "Run": "run", "Search": "search", "Study": "study"}


def __getattr__(name: str) -> object:
    """Import what is asked for only then: the command starts without it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'regiondag' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"regiondag.api.{_HOMES[name]}"), name)
