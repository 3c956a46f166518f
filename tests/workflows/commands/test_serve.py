"""What `regiondag serve` refuses before it begins."""

import builtins

import pytest

from regiondag.cli import main
from tests.workflows.serve.served import write_study


def said(capsys, *argv):
    code = main(["serve", *map(str, argv)])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "shop.example"])  # noqa: S104
def test_a_host_that_others_reach_needs_tokens(tmp_path, capsys, host):
    code, text = said(capsys, write_study(tmp_path), "--host", host)
    assert (
        code == 2 and f"--host {host}: others reach it, and there are no tokens; legal without --token-file: " in text
    )
    assert "openssl rand -hex 32" in text


def test_a_host_that_is_not_here_is_told(tmp_path, capsys):
    tokens = tmp_path / "tokens"
    tokens.write_text("t" * 32)
    tokens.chmod(0o600)
    code, text = said(capsys, write_study(tmp_path), "--host", "192.0.2.1", "--token-file", tokens)
    assert code == 1 and "192.0.2.1:8321: cannot be listened to: Cannot assign requested address" in text


def test_a_study_that_is_none_and_a_missing_file_of_tokens(tmp_path, capsys):
    assert said(capsys, tmp_path / "nowhere")[0] == 2
    code, text = said(capsys, write_study(tmp_path), "--token-file", tmp_path / "none")
    assert code == 1 and "none" in text


def test_studies_of_one_name_cannot_be_told_apart(tmp_path, capsys):
    code, text = said(capsys, write_study(tmp_path / "one"), write_study(tmp_path / "other"))
    assert code == 2 and "several of these studies are called 'shop'; legal: studies of different names" in text


@pytest.mark.parametrize(
    ("option", "value", "legal"),
    [
        ("--port", "65536", "a whole number from 0 to 65535"),
        ("--workers", "0", "a whole number from 1 to 64"),
        ("--requests", "x", "a whole number from 1 to 10000"),
        ("--memory", "4", "a size such as 512MB or 4GB, at least 1MB"),
        ("--memory", "10KB", "a size such as 512MB or 4GB, at least 1MB"),
    ],
)
def test_values_that_are_not_legal(tmp_path, capsys, option, value, legal):
    with pytest.raises(SystemExit):
        main(["serve", str(write_study(tmp_path)), option, value])
    assert legal in capsys.readouterr().err


def test_without_its_packages_it_says_what_to_type(tmp_path, capsys, monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name.partition(".")[0] == "uvicorn":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.delitem(__import__("sys").modules, "regiondag.serve.http_server", raising=False)
    code, text = said(capsys, write_study(tmp_path))
    assert code == 1 and "pip install" in text and "[serve]" in text
