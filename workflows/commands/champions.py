"""`regiondag champions`: what serves each region, what served it before, and how to go back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_verb, run_verb, warn
from regiondag.errors import RegiondagError, UsageError

if TYPE_CHECKING:
    from regiondag.registry.read import Champion, Registry

HELP = "show what serves each region; roll back, pin, compare and export it"
DESCRIPTION = """Each night's champion is a version of its region, in runs/champions/ beside the runs. `current` there
is the one that serves, and what the next night has to beat. Each change is one step, and stands in journal.jsonl."""
EPILOG = """examples:
  regiondag champions list shop
  regiondag champions show shop North
  regiondag champions diff shop North                    # what the last change was
  regiondag champions rollback shop North                # what served before serves again
  regiondag champions rollback shop --all
  regiondag champions pin shop North                     # no night changes it; unpin ends that
  regiondag champions export shop North --to north       # the model with a card"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    json_help = "one JSON object on stdout"
    listing = _add_verb(verbs, "list", _list, "list what serves each region", region=False)
    listing.add_argument("--json", action="store_true", help=json_help)
    show = _add_verb(verbs, "show", _show, "show all that is known of a version")
    show.add_argument("version", nargs="?", metavar="VERSION", help="by default the one that serves")
    show.add_argument("--json", action="store_true", help=json_help)
    diff = _add_verb(verbs, "diff", _diff, "compare two versions: recipe, figures, data")
    diff.add_argument("old", nargs="?", metavar="OLD", help="by default what served before")
    diff.add_argument("new", nargs="?", metavar="NEW", help="by default the one that serves")
    diff.add_argument("--json", action="store_true", help=json_help)
    rollback = _add_verb(verbs, "rollback", _roll_back, "let an earlier version serve", region=False)
    rollback.description = (
        "Let the version serve that did before what serves now, or that of --to. The next night begins with it, and "
        "may put another one in its place; pin the region to keep it."
    )
    rollback.add_argument("region", nargs="?", metavar="REGION", help="its name, or its folder's")
    rollback.add_argument("--all", action="store_true", help="all regions, in one step")
    rollback.add_argument("--to", metavar="VERSION", help="a version, as `list` and `show` name it")
    _add_verb(verbs, "pin", _pin, "let no night change what serves a region")
    _add_verb(verbs, "unpin", _unpin, "let nights change it again")
    export = _add_verb(verbs, "export", _export, "write the model that serves, or its card, for others")
    export.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a folder that is not there yet")
    export.add_argument("--version", metavar="VERSION", help="by default the one that serves")
    export.add_argument(
        "--format",
        choices=("netcdf", "onnx", "card"),
        default="netcdf",
        help="the model as it is, or as an ONNX graph where it is one, each with its card; or the card alone",
    )


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, verb: object, text: str, region: bool = True
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, verb, text)
    parser.add_argument("study", type=Path, metavar="STUDY", help="its folder, or its study.yaml")
    parser.add_argument(
        "--out", type=Path, metavar="RUNS", help="where its runs lie (default: runs/ beside study.yaml)"
    )
    if region:
        parser.add_argument("region", metavar="REGION", help="its name, or its folder's")
    return parser


run = run_verb


def _open(arguments: argparse.Namespace) -> Registry:
    from regiondag.registry.read import open_registry
    from regiondag.run.study_folder import find_study

    study = find_study(arguments.study, arguments.out)
    registry = open_registry(study.runs.resolve(), study.name)
    if not registry.slugs():
        raise RegiondagError(
            f"no region of {study.name!r} has a champion in {registry.path} yet: one comes when its run has ended"
        )
    return registry


def _find(registry: Registry, text: str) -> str:
    """Return the region that is meant; what stands for all together can be asked for, too."""
    from regiondag.run.lookup import find_region

    names = registry.regions()
    return find_region({**names, **{slug: slug for slug in registry.slugs() if slug not in names}}, text)


def _serving(registry: Registry, slug: str) -> Champion:
    champion = registry.current(slug)
    if champion is None:
        raise RegiondagError(f"nothing serves {slug!r} yet; versions: {', '.join(registry.names(slug)) or 'none'}")
    return champion


def _choose(registry: Registry, slug: str, version: str | None) -> Champion:
    return _serving(registry, slug) if version is None else registry.version(slug, version)


def _list(arguments: argparse.Namespace) -> int:
    from regiondag.registry.describe import list_served
    from regiondag.registry.tables import NARROW, headings_of, rows_of, served_to_json, title_of
    from regiondag.util.terminal import print_long_table
    from regiondag.util.text import spell_out

    registry = _open(arguments)
    served = list_served(registry)
    if arguments.json:
        print(served_to_json(registry, served))
    else:
        print_long_table(title_of(registry, served), headings_of(served), rows_of(served), NARROW)
    damaged = [one for one in served if one.damage]
    for one in damaged:
        warn(spell_out(f"{one.region}: {one.damage}"))
    for slug in registry.slugs():
        for what in registry.damages(slug).values():
            if not any(what == one.damage for one in damaged):
                warn(spell_out(what))
    return int(bool(damaged))


def _show(arguments: argparse.Namespace) -> int:
    from regiondag.registry.describe import describe_version
    from regiondag.registry.read import CURRENT, read_link
    from regiondag.registry.tables import version_in_words, version_to_json

    registry = _open(arguments)
    slug = _find(registry, arguments.region)
    serving = read_link(registry.path / slug / CURRENT)
    if arguments.version is None and serving is None:
        _serving(registry, slug)
    champion = registry.version(slug, arguments.version or str(serving))
    facts = describe_version(champion, champion.version == serving)
    print(version_to_json(facts) if arguments.json else version_in_words(registry, facts, champion))
    return int(any(file.damage for file in facts.files))


def _diff(arguments: argparse.Namespace) -> int:
    from regiondag.registry.describe import compare_versions
    from regiondag.registry.tables import differences_to_json, print_differences

    registry = _open(arguments)
    slug = _find(registry, arguments.region)
    new = _choose(registry, slug, arguments.new)
    old = registry.version(slug, arguments.old) if arguments.old else _previous(registry, slug)
    if old is None:
        raise RegiondagError(f"nothing served {slug!r} before {new.version}; versions: {_names(registry, slug)}")
    compared = compare_versions(old, new)
    if arguments.json:
        print(differences_to_json(compared))
    else:
        print_differences(compared)
    return 0


def _previous(registry: Registry, slug: str) -> Champion | None:
    from regiondag.registry.journal import Past, fold, read_steps
    from regiondag.registry.promote import find_previous

    return find_previous(registry, slug, fold(read_steps(registry.journal)).get(slug, Past()))


def _names(registry: Registry, slug: str) -> str:
    return ", ".join(registry.names(slug)) or "none"


def _roll_back(arguments: argparse.Namespace) -> int:
    from regiondag.registry.promote import roll_back
    from regiondag.registry.read import CURRENT, read_link

    if (arguments.region is None) != arguments.all:
        raise UsageError("say which region goes back, or --all")
    registry = _open(arguments)
    slugs = registry.slugs() if arguments.all else [_find(registry, arguments.region)]
    wanted, left = _targets(registry, slugs, arguments.to)
    before = {slug: read_link(registry.path / slug / CURRENT) for slug in wanted}
    moved = roll_back(registry, wanted)
    for slug, version in moved.items():
        print(f"{slug}: {before[slug] or 'nothing'} -> {version}")
    for slug in wanted.keys() - moved.keys():
        tell(f"{slug}: {wanted[slug]} serves already")
    for slug, why in left.items():
        warn(f"{slug}: stays; {why}")
    return int(bool(left))


def _targets(registry: Registry, slugs: list[str], to: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return to which version each region goes, and why others go nowhere."""
    from regiondag.registry.journal import Past, fold, read_steps
    from regiondag.registry.promote import find_previous

    past = fold(read_steps(registry.journal))
    wanted, left = {}, {}
    for slug in slugs:
        if to is not None:
            if registry.try_version(slug, to):
                wanted[slug] = to
            else:
                left[slug] = f"it has no whole version {to}, versions: {_names(registry, slug)}"
        elif previous := find_previous(registry, slug, past.get(slug, Past())):
            wanted[slug] = previous.version
        else:
            left[slug] = f"nothing whole served it before; versions: {_names(registry, slug)}"
    return wanted, left


def _pin(arguments: argparse.Namespace) -> int:
    from regiondag.registry.promote import pin

    registry = _open(arguments)
    champion = pin(registry, _find(registry, arguments.region))
    tell(f"{champion.region}: {champion.version} serves until `regiondag champions unpin`")
    return 0


def _unpin(arguments: argparse.Namespace) -> int:
    from regiondag.registry.promote import unpin

    registry = _open(arguments)
    slug = _find(registry, arguments.region)
    if not unpin(registry, slug):
        tell(f"{slug}: not pinned")
        return 0
    newest = next(iter(registry.names(slug)), None)
    current = _serving(registry, slug).version
    tell(f"{slug}: {current} serves until the next night's champion")
    if newest != current:
        tell(f"  {newest} is newer: regiondag champions rollback {arguments.study} {slug} --to {newest} lets it serve")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from regiondag.registry.export import export_champion

    registry = _open(arguments)
    champion = _choose(registry, _find(registry, arguments.region), arguments.version)
    print(export_champion(champion, arguments.to, arguments.format))
    return 0
