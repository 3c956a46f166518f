"""Models that a final training has brought are read by a process that may end as it likes."""

from __future__ import annotations

import sys

import pytest

from regiondag.node import brought
from regiondag.node.brought import find_misfit
from regiondag.run.layout import NodeName

SEEN = {
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": ("models that crash what reads them, by signal 11", ""),
    "import os; os.abort()": ("models that crash what reads them, by signal 6", ""),
    "import time; time.sleep(60)": ("models that were not read within 1 s", ""),
    "import sys; print('no net'); sys.exit(4)": ("no net", ""),
    "import sys; print('too little memory'); sys.exit(75)": ("", "not looked into: too little memory"),
    "import no_such_netCDF4": ("", "not looked into: ModuleNotFoundError: No module named 'no_such_netCDF4'"),
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": ("", "not looked into: exit code -9"),
    "import sys; print('\\x1b[2J' * 1000); sys.exit(4)": ("?[2J", ""),
}


@pytest.mark.parametrize("code", SEEN, ids=range(len(SEEN)))
def test_however_it_ends_something_is_said(tmp_path, monkeypatch, capsys, code):
    package = tmp_path / "archive" / "nnlib" / "inspection"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "brought_models.py").write_text(code)
    monkeypatch.setattr(brought, "PATIENCE", 1 if "sleep" in code else 60)
    place = tmp_path / "germany" / "trials" / "final"
    place.mkdir(parents=True)
    misfit, said = SEEN[code]
    found = find_misfit(place, tmp_path, tmp_path / "archive")
    assert found.startswith(misfit) and bool(found) == bool(misfit) and len(found) <= 403
    assert said in capsys.readouterr().out


def test_where_no_process_can_be_started_it_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    assert find_misfit(tmp_path / "germany/trials/final", tmp_path, tmp_path) == ""
    assert "germany: the models of the last training are not looked into: [Errno 2]" in capsys.readouterr().out


def test_models_of_a_training_fit(trained, capfd):
    region = trained.region("germany")
    [archive] = trained.path.glob("nnlib-*.pyz")
    assert find_misfit(region.trial(NodeName("germany", None)), region.path, archive) == ""
    assert capfd.readouterr().out == ""


def test_without_the_data_nothing_is_said_of_the_models(trained, tmp_path, capsys):
    [archive] = trained.path.glob("nnlib-*.pyz")
    place = trained.region("germany").trial(NodeName("germany", None))
    assert find_misfit(place, tmp_path, archive) == ""
    assert "germany: the models of the last training are not looked into: " in capsys.readouterr().out
