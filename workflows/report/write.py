"""Writes summary.json and summary.md."""

from __future__ import annotations

import json
from dataclasses import asdict

from nnlib.util.files import write_atomically
from regiondag.report.markdown import to_markdown
from regiondag.report.summary import Summary, summarise
from regiondag.run.layout import RunFolder


def write_report(run: RunFolder) -> Summary:
    """Read all journals and write the report's files anew."""
    summary = summarise(run)
    run.report.mkdir(exist_ok=True)
    raw = asdict(summary) | {"finished": summary.finished}
    write_atomically(run.report / "summary.json", json.dumps(raw, indent=1, ensure_ascii=False) + "\n")
    write_atomically(run.report / "summary.md", to_markdown(summary))
    return summary
