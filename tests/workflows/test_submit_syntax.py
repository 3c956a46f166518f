import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows import submit_syntax
from workflows.submit_syntax import QuotingError, arguments, classad_string, name, path, submit_value


def test_doctests():
    assert doctest.testmod(submit_syntax).failed == 0


@pytest.mark.parametrize("bad", ["/a b", "/a$(x)", "/a;b", "/a\nb", "/a'b", '/a"b', "", "/a,b", "/a#b", "/a\\b"])
def test_paths_that_dagman_would_split_or_expand_are_refused(bad):
    with pytest.raises(QuotingError, match="--out"):
        path(bad)


@pytest.mark.parametrize("good", ["/home/josé/run-1", "/a/b.c_d-e", "../x"])
def test_ordinary_paths_pass(good):
    assert path(good) == good


@pytest.mark.parametrize("bad", ["a b", "a.b", "a+b", "", "a\n", "é"])
def test_names(bad):
    with pytest.raises(QuotingError):
        name(bad)


@given(st.text())
def test_no_value_leaves_its_line_or_starts_a_macro(text):
    for quote in (submit_value, classad_string, lambda t: arguments([t])):
        try:
            quoted = quote(text)
        except QuotingError:
            continue
        assert len(quoted.splitlines()) <= 1
        assert "$" not in quoted.replace("$(DOLLAR)", "")
        assert "$(DOLLAR)$(DOLLAR)" not in quoted  # which HTCondor would expand again, on the machine


def test_two_dollars_are_a_macro_of_the_machine():
    assert submit_value("Cash $$ (UK) $$(X)") == "Cash $(DOLLAR) (UK) $(DOLLAR)(X)"
    with pytest.raises(QuotingError, match="expands on the machine"):
        arguments(["a", "$$(X)"])


@given(st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126)), max_size=4))
def test_arguments_are_what_a_shell_of_condors_rules_gives_back(words):
    words = [word.replace("$$", "$") for word in words]
    words = [word.replace("$$", "") for word in words]
    assert _parse(arguments(words).replace("$(DOLLAR)", "$")) == words


def _parse(text):
    """HTCondor's rules: the whole in double quotes, "" stands for one; words in single quotes, '' for one."""
    assert text[0] == text[-1] == '"'
    text, words, word, quoted, i = text[1:-1].replace('""', '"'), [], None, False, 0
    while i < len(text):
        character = text[i]
        if quoted and text[i : i + 2] == "''":
            word, i = word + "'", i + 1
        elif character == "'":
            quoted, word = not quoted, word or ""
        elif character == " " and not quoted:
            words, word = words + ([word] if word is not None else []), None
        else:
            word = (word or "") + character
        i += 1
    return words + ([word] if word is not None else [])
