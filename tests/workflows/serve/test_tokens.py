"""Tokens come from a file that is nobody else's, and never leave it."""

import os

import pytest

from regiondag.errors import UsageError
from regiondag.serve.tokens import is_allowed, read_tokens

ONE, OTHER = "a" * 32, "b!~" * 8


def write(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_each_line_is_a_token_but_for_comments(tmp_path):
    tokens = read_tokens(write(tmp_path / "tokens", f"# mine\n{ONE}\n\n  {OTHER}\n"))
    assert is_allowed(tokens, f"Bearer {ONE}".encode()) and is_allowed(tokens, f"bearer  {OTHER} ".encode())
    for wrong in ("", ONE, f"Basic {ONE}", f"Bearer {ONE}x", f"Bearer {ONE[:-1]}", "Bearer # mine", "Bearer "):
        assert not is_allowed(tokens, wrong.encode())


def test_tokens_are_kept_as_digests(tmp_path):
    assert ONE.encode() not in b"".join(read_tokens(write(tmp_path / "tokens", ONE)))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_use_is_refused(tmp_path, mode):
    with pytest.raises(UsageError, match=f"others may use it .mode {mode:04o}., legal: 0600; next: chmod 600"):
        read_tokens(write(tmp_path / "tokens", ONE, mode))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand something to a service")
def test_what_root_hands_to_a_service_its_group_may_read(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert read_tokens(write(tmp_path / "tokens", ONE, 0o440))
    for mode in (0o460, 0o444, 0o450):
        with pytest.raises(UsageError, match="others may use it"):
            read_tokens(write(tmp_path / "other", ONE, mode))


@pytest.mark.parametrize("text", ["", "# nothing\n", "short\n", "x" * 513, "with a blank in it\n", "ä" * 32, "\0" * 32])
def test_what_is_no_token_is_refused_without_showing_it(tmp_path, text):
    with pytest.raises(UsageError) as error:
        read_tokens(write(tmp_path / "tokens", text))
    assert "legal: " in str(error.value)
    assert not text.strip() or text.strip() not in str(error.value)


def test_a_hundred_tokens_are_enough(tmp_path):
    with pytest.raises(UsageError, match="101 tokens, legal: 1 to 100"):
        read_tokens(write(tmp_path / "tokens", "".join(f"{n:032}\n" for n in range(101))))


def test_a_folder_is_no_file_of_tokens(tmp_path):
    with pytest.raises((UsageError, OSError)):
        read_tokens(tmp_path)
