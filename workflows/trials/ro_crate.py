"""A run as an RO-Crate of the Workflow Run profiles: what ran, on what, and what came of it, in one folder.

https://www.researchobject.org/workflow-run-crate/: Process, Workflow and Provenance Run Crate 0.5, of RO-Crate 1.1.
Data stay where they are: they are named by their SHA-256 alone, as RFC 6920 writes it (`ni:///sha-256;...`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from nnlib.contract import PROGRAM_FILE, Status, sha256_of
from nnlib.util.files import appearing, copy_atomically, write_atomically
from nnlib.worker.downloads import Download
from regiondag.errors import ConfigError
from regiondag.run.layout import STUDY_FILE, RunFolder
from regiondag.run.study_folder import check_free
from regiondag.trials.provenance import Provenance, Task, created_at, show_time
from regiondag.trials.wfformat import ENGINE, SITE, wfformat_of
from regiondag.util.yaml_file import load_yaml, parse_yaml

METADATA = "ro-crate-metadata.json"
GRAPH = "wfformat.json"
CONTEXT = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
CRATE, WORKFLOW_CRATE = "https://w3id.org/ro/crate/1.1", "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
PROFILES = {f"https://w3id.org/ro/wfrun/{name}/0.5": f"{name.title()} Run Crate" for name in ("process", "workflow")}
PROFILES |= {"https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate", WORKFLOW_CRATE: "Workflow RO-Crate"}
STATUS = "http://schema.org/{}ActionStatus"
UNSTATED = "No licence is stated: ask who made the study."
PRIVATE = ("notify", "track")  # of study.yaml: whom to tell, and where
KINDS = {
    ".nc": "application/netcdf",
    ".zip": "application/zip",
    ".json": "application/json",
    ".yaml": "application/yaml",
}

Entity = Mapping[str, object]
Reference = dict[str, str]


def write_crate(run: RunFolder, known: Provenance, folder: Path, now: float, license_: str = UNSTATED) -> int:
    """Write a crate into a new folder, with study.yaml and all champions, and return the number of its entities.

    UsageError for a folder that holds something.
    """
    check_free(folder)
    with appearing(folder) as part:
        write_atomically(part / STUDY_FILE, public_study(run))
        write_atomically(part / GRAPH, json.dumps(wfformat_of(known), indent=1, ensure_ascii=False) + "\n")
        for name in (name for names in known.champions.values() for name in names):
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            copy_atomically(run.path / name, part / name)
        entities = _Crate(known, part, now, license_).entities()
        text = json.dumps({"@context": CONTEXT, "@graph": entities}, indent=1, ensure_ascii=False)
        write_atomically(part / METADATA, f"{text}\n")
    return len(entities)


def public_study(run: RunFolder) -> str:
    """Return the study as others may read it: without whom it tells, and without the folders of who made it."""
    path = run.path / STUDY_FILE
    text, document = path.read_text(encoding="utf-8"), load_yaml(path)
    kept = {key: value for key, value in document.value.items() if key not in PRIVATE}
    if len(kept) < len(document.value):
        starts = sorted({line for place, line in document.lines.items() if len(place) == 1})
        lines = text.splitlines(keepends=True)
        for key in document.value.keys() - kept.keys():
            first = document.lines[(key,)]
            after = next((line for line in starts if line > first), len(lines) + 1)
            lines[first - 1 : after - 1] = ["\n"] * (after - first)
        text = "".join(lines)
        if _is_other(text, kept):  # where several keys share a line
            text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    place = run.path.resolve().parents[1]
    if (place / STUDY_FILE).is_file():  # else runs are kept elsewhere
        text = _without(place, ".", text)
    return _without(Path.home(), "~", text)


def _without(folder: Path, instead: str, text: str) -> str:
    return text if folder == folder.parent else re.sub(rf"{re.escape(str(folder))}(?![\w.-])", instead, text)


def _is_other(text: str, kept: Mapping[str, object]) -> bool:
    try:
        return bool(parse_yaml(text, STUDY_FILE).value != kept)
    except ConfigError:
        return True


def digest_uri(sha256: str) -> str:
    """Return a SHA-256 in hexadecimal digits as a URI of RFC 6920.

    >>> digest_uri("00" * 32)
    'ni:///sha-256;AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    return f"ni:///sha-256;{base64.urlsafe_b64encode(bytes.fromhex(sha256)).decode().rstrip('=')}"


@dataclass(slots=True)
class _Crate:
    """The graph of entities, each added once."""

    run: Provenance
    folder: Path
    now: float
    license: str
    found: dict[str, Entity] = field(default_factory=dict)
    tools: dict[str, Reference] = field(default_factory=dict)  # by the archive that a task ran

    def entities(self) -> list[Entity]:
        run = self.run
        self.tools = {archive: self._tool(archive) for archive in dict.fromkeys(map(self._archive, run.tasks))}
        graph = self._file(GRAPH, "The graph of the run, with times and machines, as WfFormat 1.5 has it")
        inputs = {name: self._input(name) for name in run.manifest.sha256 if _is_data(name)}
        fetched = {slug: list(map(self._download, ones)) for slug, ones in run.downloads.items()}
        champions = {name: self._champion(slug, name) for slug, names in run.champions.items() for name in names}
        begun = [task for task in run.tasks if task.outcome or task.attempt]
        actions = [self._action(task, inputs, fetched.get(task.node.slug, []), champions) for task in begun]
        workflow = self._workflow()
        data = [*inputs.values(), *(one for ones in fetched.values() for one in ones)]
        whole = self._run(workflow, data, list(champions.values()))
        profiles = [self._add(uri, "CreativeWork", name=name, version=uri[-3:]) for uri, name in PROFILES.items()]
        root = self._add(
            "./",
            "Dataset",
            name=f"{run.manifest.study}: {run.name}",
            description=f"A run of regiondag: {len(run.tasks)} jobs that train models of "
            f"{', '.join(run.manifest.regions.values())}, judged by {run.manifest.metric}.",
            datePublished=show_time(self.now),
            license=self._license(),
            conformsTo=profiles,
            mainEntity=workflow,
            hasPart=[workflow, graph, *champions.values(), *data],
            mentions=[whole, *actions],
        )
        first = {"about": root, "conformsTo": [{"@id": CRATE}, {"@id": WORKFLOW_CRATE}]}
        return [{"@id": METADATA, "@type": "CreativeWork", **first}, *self.found.values()]

    def _add(self, identity: str, kind: str | list[str], /, **facts: object) -> Reference:
        known = {key: _alone(value) for key, value in facts.items() if value not in (None, "", [])}
        self.found.setdefault(identity, {"@id": identity, "@type": kind, **known})
        return {"@id": identity}

    def _license(self) -> str | Reference:
        return self._add(self.license, "CreativeWork", name=self.license) if "://" in self.license else self.license

    def _file(self, name: str, title: str, kind: str | list[str] = "File", **facts: object) -> Reference:
        path = self.folder / name
        size, digest = str(path.stat().st_size), sha256_of(path)
        form = KINDS.get(path.suffix)
        return self._add(name, kind, name=title, contentSize=size, sha256=digest, encodingFormat=form, **facts)

    def _input(self, name: str) -> Reference:
        """Add what the run was made of, which is not in the crate."""
        digest, size = self.run.manifest.sha256[name], self.run.sizes.get(name)
        known = {"sha256": digest, "contentSize": None if size is None else str(size)}
        return self._add(digest_uri(digest), "File", name=name, encodingFormat=KINDS.get(Path(name).suffix), **known)

    def _download(self, one: Download) -> Reference:
        """Add what jobs got from a URL; a path of a machine's own is nobody else's address."""
        address = None if one.url.startswith("file:") else one.url
        return self._add(digest_uri(one.sha256), "File", name=one.name, sha256=one.sha256, contentUrl=address)

    def _champion(self, slug: str, name: str) -> Reference:
        return self._file(name, f"Champion of {self.run.manifest.regions[slug]}: {Path(name).name}")

    def _software(self, name: str, version: str | None, **facts: object) -> Reference:
        return self._add(
            f"#software-{quote(f'{name}-{version}', safe='')}",
            "SoftwareApplication",
            name=name,
            softwareVersion=version,
            **facts,
        )

    def _workflow(self) -> Reference:
        versions = dict(self.run.manifest.versions)
        engine = self._software(ENGINE, versions.pop("htcondor", None), url=SITE)
        version = versions.pop("regiondag", None)
        language = self._add("#language", "ComputerLanguage", name="regiondag's study.yaml", version=version)
        return self._file(
            STUDY_FILE,
            f"The study {self.run.manifest.study}",
            ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
            programmingLanguage=language,
            hasPart=list(self.tools.values()),
            softwareRequirements=[engine, *(self._software(name, one) for name, one in versions.items())],
        )

    def _run(self, workflow: Reference, inputs: Sequence[Reference], champions: Sequence[Reference]) -> Reference:
        dag = self.run.dag
        state = None if dag is None else "Active" if dag.ended is None else "Failed" if dag.exit_code else "Completed"
        return self._add(
            f"#{self.run.name}",
            "CreateAction",
            name=self.run.name,
            description=f"Made at {made}" if (made := created_at(self.run.manifest)) else None,
            instrument=workflow,
            object=[workflow, *inputs],
            result=list(champions),
            startTime=show_time(dag.started) if dag and dag.started else None,
            endTime=show_time(dag.ended) if dag and dag.ended else None,
            actionStatus=STATUS.format(state) if state else None,
        )

    def _archive(self, task: Task) -> str:
        """Return the file that a task ran: the program of its region, or nnlib."""
        program = f"regions/{task.node.slug}/{PROGRAM_FILE}"
        return program if program in self.run.manifest.sha256 else self.run.code

    def _tool(self, archive: str) -> Reference:
        manifest, digest = self.run.manifest, self.run.manifest.sha256.get(archive)
        name, title = "#nnlib", "nnlib"
        if archive.startswith("regions/"):
            slug = archive.split("/")[1]
            name, title = f"#program-{slug}", f"The program of {manifest.regions[slug]}"
        ours = [task for task in self.run.tasks if self._archive(task) == archive]
        seen = sorted({item for task in ours for item in task.versions.items()})
        needs = [self._software(what, version) for what, version in seen if what != "nnlib"]
        uri = digest_uri(digest) if digest else None
        return self._add(name, "SoftwareApplication", name=title, identifier=uri, softwareRequirements=needs)

    def _action(
        self,
        task: Task,
        inputs: Mapping[str, Reference],
        fetched: Sequence[Reference],
        champions: Mapping[str, Reference],
    ) -> Reference:
        """Add one training: what it was given, when it ran, and what it came to."""
        region, number, outcome = self.run.manifest.regions[task.node.slug], task.node.number, task.outcome
        name = f"#{task.node}"
        given = [*(inputs[one] for one in task.inputs if one in inputs), *fetched]
        given += [self._value(f"{name}/{quote(key)}", key, value) for key, value in task.point.items()]
        figures = outcome.metrics if outcome else {}
        result = [self._value(f"{name}/result/{quote(key)}", key, value) for key, value in figures.items()]
        if number is None:
            result += [one for file, one in champions.items() if file.startswith(f"regions/{task.node.slug}/")]
        good = outcome is not None and outcome.status in (Status.OK, Status.PRUNED)
        state = "Active" if outcome is None else "Completed" if good else "Failed"
        return self._add(
            name,
            "CreateAction",
            name=f"{region}: {'the last training' if number is None else f'trial {number}'}",
            description=outcome.reason if outcome and good else None,
            instrument=self.tools[self._archive(task)],
            object=given,
            result=result,
            startTime=None if task.started is None else show_time(task.started),
            endTime=None if task.ended is None else show_time(task.ended),
            actionStatus=STATUS.format(state),
            error=outcome.reason or outcome.status.value if outcome and not good else None,
        )

    def _value(self, name: str, key: str, value: object) -> Reference:
        return self._add(name, "PropertyValue", name=key, value=value)


def _alone(value: object) -> object:
    """Return a list without what stands in it twice, and what is alone in one without the list."""
    if not isinstance(value, list):
        return value
    found = [one for number, one in enumerate(value) if one not in value[:number]]
    return found[0] if len(found) == 1 else found


def _is_data(name: str) -> bool:
    """Return whether a file that a run was made of says what was trained with, and is not regiondag's own."""
    path = Path(name)
    return name.startswith("regions/") and path.name != "region.json"
