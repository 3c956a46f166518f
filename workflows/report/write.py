"""Writes summary.json and summary.md."""

from __future__ import annotations

import json
from dataclasses import asdict

from nnlib.util.files import write_atomically
from regiondag.report.bill import Bill
from regiondag.report.headline import gains_of, judge
from regiondag.report.markdown import to_markdown
from regiondag.report.summary import Summary, summarise
from regiondag.run.layout import RunFolder


def write_report(run: RunFolder, bill: Bill | None = None) -> Summary:
    """Read all journals and write the report's files anew; `bill` is what the run's jobs took."""
    summary = summarise(run, bill)
    run.report.mkdir(exist_ok=True)
    raw = asdict(summary) | {"finished": summary.finished, "headline": asdict(summary.headline)}
    for row, region in zip(raw["regions"], summary.regions, strict=True):
        if region.confusion is None:
            del row["confusion"]
        else:
            del row["confusion"]["examples"]
        verdict, against = judge(region, summary.metric)
        gains = {name: asdict(gain) for name, gain in gains_of(region, summary.metric).items()}
        row |= {"verdict": verdict, "against": against, "gains": gains}
    write_atomically(run.report / "summary.json", json.dumps(raw, indent=1, ensure_ascii=False) + "\n")
    write_atomically(run.report / "summary.md", to_markdown(summary))
    return summary
