"""Files of a program from URLs: what is legal, what would harm a submit file, and what would tell a secret."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.worker.downloads import Download
from regiondag.condor import quoting
from regiondag.study.program import URL
from regiondag.trainers.urls import UrlForm, check_url, read_form, resolve

DIGEST = "a1" * 32


def test_an_entry_with_a_digest_has_the_name_that_its_url_ends_with(tmp_path):
    form = read_form({"url": "https://host/{region}/a%20b.csv?download=1", "sha256": DIGEST.upper()})
    assert resolve(form, tmp_path, "Côte d'Ivoire") == Download(
        "https://host/C%C3%B4te%20d%27Ivoire/a%20b.csv?download=1", "a b.csv", DIGEST
    )
    form = read_form({"url": "osdf:///ospool/x.csv", "sha256": DIGEST, "name": "data/{region}.csv"})
    assert resolve(form, tmp_path, "A, B $(HOME)").name == "data/A, B $(HOME).csv"


def test_objects_that_htcondor_signs_for_have_plain_names(tmp_path):
    form = UrlForm("s3://minio.example.org:9000/bucket/{region}.csv", DIGEST, "data.csv")
    assert resolve(form, tmp_path, "South-East").url == "s3://minio.example.org:9000/bucket/South-East.csv"
    for region in ("Côte d'Ivoire", "A, B", "50%", "what?", "a+b", ""):
        with pytest.raises(ValueError, match=r"^url s3://minio.*|it ends with '.csv'"):
            resolve(form, tmp_path, region)
    for url in ("gs://bucket/a%20b.csv", "gs://bucket/a.csv?x=1", "s3://a.csv", "s3://bucket//a.csv", "gs://b/a=1.csv"):
        with pytest.raises(ValueError, match=r"legal: s3://BUCKET/KEY or s3://HOST/BUCKET/KEY"):
            check_url(url)


def test_digests_stand_in_a_file_as_sha256sum_writes_it(tmp_path):
    lines = [f"{DIGEST}  data/Nord.csv", f"{'b2' * 32} *Côte x.csv", "no digest  at all", ""]
    (tmp_path / "SHA256SUMS").write_text("\n".join(lines))
    form = UrlForm("https://host/{region}.csv", "SHA256SUMS", "data.csv")
    assert resolve(form, tmp_path, "Nord").sha256 == DIGEST
    assert resolve(form, tmp_path, "Côte x") == Download("https://host/C%C3%B4te%20x.csv", "data.csv", "b2" * 32)
    with pytest.raises(ValueError, match=r"no line `SHA256  Süd.csv`, as sha256sum writes it, for region 'Süd'"):
        resolve(form, tmp_path, "Süd")
    for name, content in (("none", None), ("bytes", b"\xff")):
        if content:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match="neither 64 hexadecimal digits nor a file of them"):
            resolve(UrlForm("https://host/a", name, ""), tmp_path, "Nord")


@pytest.mark.parametrize(
    "value",
    [
        {"url": "https://host/a"},
        {"sha256": DIGEST},
        {"url": "https://host/a", "sha256": 12},
        {"url": "https://host/a", "sha256": DIGEST, "name": 3},
        {"url": "https://host/a", "sha256": DIGEST, "md5": "x"},
        {"url": "", "sha256": DIGEST},
    ],
)
def test_entries_that_are_none(value):
    with pytest.raises(ValueError, match="legal: "):
        read_form(value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://anna:hunter2@host/a.csv", "before @ would go to all workers"),
        ("https://host/a.csv?X-Amz-Signature=hunter2", "query looks signed"),
        ("https://host/a.csv?x=1&sig=hunter2", "query looks signed"),
        ("https://host/a.csv?access_token=hunter2", "query looks signed"),
        ("https://host/a,b.csv", "%2C for a comma"),
        ("https://host/a b.csv", "%20 for a blank"),
        ("https://host/$(HOME).csv", "percent-encoded"),
        ("https://host/a.csv\nqueue 9", "percent-encoded"),
        ("https://host/a.csv#b", "percent-encoded"),
        ("host/a.csv", "legal: https://"),
        ("data:///a", "legal: https://"),
        (f"https://host/{'a' * 2000}", "legal: https://"),
        ("https://host/a/", "is no file's name"),
        ("https://host/..", "is no file's name"),
        ("https://host/trial.json", "or one that jobs have"),
        ("https://host/nnlib-abc.pyz", "or one that jobs have"),
        ("https://host/.job.ad?x=1", "or one that jobs have"),
    ],
)
def test_urls_that_cannot_stand_in_a_submit_file_or_that_tell_a_secret(url, said):
    with pytest.raises(ValueError) as caught:
        check_url(url)
    assert said in str(caught.value) and "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "result.json", "checkpoint/x", "a\nb", "a" * 201])
def test_names_that_lead_out_of_the_programs_folder_or_are_its_jobs(tmp_path, name):
    with pytest.raises(ValueError):
        resolve(UrlForm("https://host/a", DIGEST, name), tmp_path, "Nord")
    with pytest.raises(KeyError, match="lr"):
        resolve(UrlForm("https://host/{lr}", DIGEST, ""), tmp_path, "Nord")


@given(st.text(max_size=40), st.text(max_size=20))
def test_whatever_a_region_is_called_its_url_is_one_entry_of_the_list(tmp_path_factory, region, after):
    form = UrlForm("https://host/{region}/" + after.replace("{", "").replace("}", ""), sha256(b"").hexdigest(), "a")
    try:
        one = resolve(form, tmp_path_factory.getbasetemp(), region)
    except ValueError:
        return
    assert quoting.url(one.url) == one.url and re.fullmatch(URL, one.url)
    assert not set(one.url) & set(",$\"'\\ \n") and "/" not in one.file
