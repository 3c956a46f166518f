import doctest
import re
from contextlib import suppress

import classad2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.condor import client, quoting
from regiondag.condor.quoting import QuotingError, arguments, classad_string, name, path, submit_value


def test_doctests():
    assert doctest.testmod(quoting).failed == 0


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


# What HTCondor's macros, words and ClassAds are made of, beside any other text.
MACROS = ["$$", "$(DOLLAR)", "$(a)", "$F(", "$ENV(", "$INT(", "DOLLAR)"]
SYNTAX = st.sampled_from(["\\", '"', *"'$(){}:,=#; \u00a0\u3000", *MACROS])
TEXTS = st.lists(SYNTAX | st.text(max_size=2), max_size=8).map("".join)


def expanded(command, value):
    """Return what HTCondor makes of the right side of a submit command, with another command in the next line."""
    return client.bindings(None).Submit(f"{command} = {value}\nnext = 1\n").expand(command)


def called(function, *texts):
    """Call one of HTCondor's ClassAd functions."""
    return classad2.ExprTree(f"{function}({', '.join(map(classad2.quote, texts))})").eval()


def within(command, quoted):
    """Return what is between the double quotes of `arguments` or `environment`."""
    text = expanded(command, quoted)
    assert text[0] == text[-1] == '"'
    return text[1:-1].replace('""', '"')


@given(st.lists(TEXTS, max_size=4))
def test_arguments_are_the_words_that_htcondor_reads(words):
    with suppress(QuotingError):
        assert called("argsToList", within("arguments", arguments(words))) == words


@given(st.dictionaries(st.from_regex("[A-Z_]{1,3}", fullmatch=True), TEXTS, max_size=3))
def test_an_environment_is_what_htcondor_reads(variables):
    with suppress(QuotingError):
        quoted = arguments([f"{name}={text}" for name, text in variables.items()])
        words = called("argsToList", called("mergeEnvironment", within("environment", quoted)))
        assert dict(word.split("=", 1) for word in words) == variables


@given(TEXTS)
def test_labels_are_what_htcondor_reads(text):
    shown = re.sub(r"\$+", "$", text)
    with suppress(QuotingError):
        ad = classad2.parseOne(f"Label = {expanded('MY.Label', classad_string(text))}", classad2.ParserType.Old)
        assert ad["Label"] == shown
    with suppress(QuotingError):
        if shown.strip(" "):
            assert expanded("batch_name", submit_value(text)) == shown.strip(" ")
        else:
            submit_value(text)


@given(st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="$\\"), min_size=1))
def test_no_label_without_dollars_and_backslashes_is_refused(text):
    for quote in (submit_value, classad_string, lambda t: arguments([t])):
        quote(text)


@pytest.mark.parametrize("bad", ["a\\", "a\\ ", "\\"])
def test_a_backslash_at_the_end_does_not_take_in_the_next_line(bad):
    with pytest.raises(QuotingError, match="next line"):
        submit_value(bad)
    assert called("argsToList", within("arguments", arguments([bad]))) == [bad]


def test_a_backslash_stands_for_itself_and_must_not_end_a_string():
    assert classad_string('a\\b\\"c') == '"a\\b\\\\"c"'
    with pytest.raises(QuotingError, match="quote behind it"):
        classad_string("a\\")


@pytest.mark.parametrize("bad", ["$(DOLLAR)", "$(dollar)(HOME)", "$F(a", "$(a:$(b))", "$ENV(HOME)"])
def test_what_htcondor_reads_again_is_refused(bad):
    for quote in (submit_value, classad_string, lambda t: arguments([t])):
        with pytest.raises(QuotingError, match="even where it is quoted"):
            quote(bad)
