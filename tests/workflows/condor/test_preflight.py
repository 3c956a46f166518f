"""Which submit files are tried out, without a pool."""

from __future__ import annotations

from regiondag.condor.preflight import distinct_submit_files
from regiondag.run.layout import RunFolder


def test_one_file_of_each_kind_is_tried_and_regions_without_trials_have_none(tmp_path):
    run = RunFolder(tmp_path)
    for slug, names in {"a": ("final.sub",), "b": ("final.sub",), "pooled": ("train.sub", "final.sub")}.items():
        folder = run.region(slug).path
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text(f"executable = x\ninitialdir = {folder}\nbatch_name = {slug}\nqueue\n")
    found = distinct_submit_files(run, ["a", "b", "pooled"])
    assert {file.relative_to(tmp_path / "regions").as_posix(): slugs for file, slugs in found.items()} == {
        "a/final.sub": ["a", "b", "pooled"],
        "pooled/train.sub": ["pooled"],
    }
