"""`regiondag pool`: an HTCondor on this machine, to try studies on and to test with."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.os_errors import reason_of
from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_verb, number, run_verb
from regiondag.condor.versions import show_version
from regiondag.errors import PoolError, PreflightError, UsageError
from regiondag.pool.suites import SUITES

if TYPE_CHECKING:
    from regiondag.pool.lifecycle import PoolWishes

PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
HELP = "start, stop and look at an HTCondor pool on this machine"

DESCRIPTION = """\
An HTCondor pool on this machine: the one that is installed, else one in a root folder made of Debian packages,
which runs without touching the host's services. The first start builds that folder (about two minutes)."""

EPILOG = """examples:
  regiondag pool up --simulate-gpus 2
  regiondag pool up --packages r-base-core             # jobs find Rscript
  regiondag pool exec -- condor_status
  regiondag pool logs startd --follow
  regiondag pool check study.yaml
  regiondag pool down"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    up = _add_verb(verbs, "up", _up, "start the pool and wait until it is ready")
    up.add_argument("--suite", choices=SUITES, help="Debian release: trixie has HTCondor 23.9, forky 25.14")
    up.add_argument(
        "--simulate-gpus", type=number(int), metavar="N", help="let HTCondor's GPU discovery make up N GPUs"
    )
    up.add_argument(
        "--config", type=Path, action="append", metavar="FILE", help="HTCondor settings to append (can be repeated)"
    )
    up.add_argument(
        "--packages", metavar="NAMES", help="packages of Debian's that jobs need, with commas: r-base-core,git"
    )
    up.add_argument("--rebuild", action="store_true", help="build the root folder anew, with today's packages")

    down = _add_verb(verbs, "down", _down, "stop the pool; its queue is kept")
    down.add_argument("--purge", action="store_true", help="also remove its queue, logs and settings")

    status = _add_verb(verbs, "status", _status, "say what runs and what it offers")
    status.add_argument("--json", action="store_true", help="one JSON object on stdout")

    check = _add_verb(
        verbs, "check", _check, "say what a pool offers and asks, ours or not, and what a study lacks there"
    )
    check.add_argument(
        "study", type=Path, nargs="?", metavar="STUDY", help="a study (its folder or file): would its jobs run there?"
    )
    check.add_argument("--json", action="store_true", help="one JSON object on stdout")

    run = _add_verb(verbs, "exec", _exec, "run a command where the pool's programs are")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")

    logs = _add_verb(verbs, "logs", _logs, "print the end of a daemon's log")
    logs.add_argument("daemon", nargs="?", default="master", help="master (default), schedd, startd, negotiator ...")
    logs.add_argument(
        "-n",
        dest="lines",
        type=number(int),
        default=40,
        metavar="LINES",
        help="how many lines (default 40)",
    )
    logs.add_argument("--follow", action="store_true", help="go on with what is written from now on")


run = run_verb


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, verb: object, text: str
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, verb, text)
    parser.add_argument("--name", help="which embedded pool (default: $REGIONDAG_POOL, else 'default')")
    return parser


def _up(arguments: argparse.Namespace) -> int:
    from regiondag.pool import lifecycle
    from regiondag.pool.machine import check_machine
    from regiondag.pool.pool import find_installed_pool, find_pool

    wishes = _wishes(arguments)
    if arguments.name is None and not find_pool("default") and (installed := find_installed_pool()):
        version = show_version(installed.version)
        if wishes == lifecycle.PoolWishes() and not arguments.rebuild:
            tell(f"HTCondor {version} is installed and running here; regiondag uses it")
            tell("for an embedded pool beside it give it a name: regiondag pool up --name test")
            return 0
        if check_machine(["pool"]).uses_installed:
            tell(f"no user namespaces here: HTCondor {version}, which is installed, is used as it is")
            return 0
    if wishes.simulated_gpus is None and Path("/dev/nvidia0").exists():
        tell("this machine's GPUs are not passed on: the embedded pool offers CPU slots only; see --simulate-gpus")
    pool = lifecycle.up(arguments.name, wishes, tell, arguments.rebuild)
    plural = "" if pool.simulated_gpus == 1 else "s"
    gpus = f", {pool.simulated_gpus} simulated GPU{plural}" if pool.simulated_gpus else ""
    tell(f"the pool {pool.name!r} is up: HTCondor {show_version(pool.version)}{gpus}")
    return 0


def _wishes(arguments: argparse.Namespace) -> PoolWishes:
    from regiondag.pool.lifecycle import PoolWishes

    gpus = arguments.simulate_gpus
    if gpus is not None and not 0 <= gpus <= 16:
        raise UsageError(f"--simulate-gpus {gpus}: HTCondor simulates 0 to 16 GPUs")
    config = None
    if arguments.config is not None:
        config = tuple((str(path), _read_config(path)) for path in arguments.config)
    packages = None
    if arguments.packages is not None:
        packages = tuple(arguments.packages.split(",")) if arguments.packages else ()
        for name in packages:
            if not PACKAGE.fullmatch(name):
                raise UsageError(
                    f"--packages: seen {name!r}; legal: names of Debian's packages, such as r-base-core,git"
                )
    return PoolWishes(arguments.suite, gpus, config, packages)


def _read_config(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--config {path}: {reason_of(error)}; legal: a file of HTCondor's settings") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--config {path}: byte {error.start} is not UTF-8; legal: a text file of HTCondor's settings"
        ) from None


def _down(arguments: argparse.Namespace) -> int:
    from regiondag.pool import lifecycle
    from regiondag.pool.pool import choose_name, find_installed_pool, read_state

    if arguments.name is None and read_state(choose_name(None)) is None and find_installed_pool():
        raise PoolError("the HTCondor installed on this machine is not regiondag's to stop; see: systemctl stop condor")
    lifecycle.down(arguments.name, tell, arguments.purge)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from nnlib.util.columns import print_folded
    from regiondag.pool.pool import require_pool
    from regiondag.pool.status import as_json, as_text, look

    status = look(require_pool(arguments.name))
    if arguments.json:
        print(as_json(status))
        return 0
    for line in as_text(status).splitlines():
        print_folded(line, indent="    ")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from nnlib.util.columns import print_folded
    from regiondag.condor.pool_check import check_pool
    from regiondag.condor.survey_text import describe
    from regiondag.config.load import load_config
    from regiondag.generate.render import submit_texts
    from regiondag.pool.pool import require_pool
    from regiondag.run.study_folder import find_study
    from regiondag.util.text import spell_out

    config = load_config(find_study(arguments.study).study) if arguments.study else None
    pool = require_pool(arguments.name)
    found = check_pool(pool, submit_texts(config, pool.version) if config else {}, config.most_jobs if config else 0)
    if arguments.json:
        print(json.dumps(dataclasses.asdict(found)))
    else:
        for label, text in describe(found.survey, found.access):
            print_folded(f"{label:<12}{text}", indent=" " * 12)
        for finding in found.findings:
            print_folded(spell_out(f"{finding.state:<4} {finding.subject}: {finding.text}"), indent="     ")
    if not found.good:
        raise PreflightError(f"{arguments.study} would not run on this pool as it is; see the lines marked BAD")
    return 0


def _exec(arguments: argparse.Namespace) -> int:
    from regiondag.pool.pool import require_pool

    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise UsageError("nothing to run; for instance: regiondag pool exec -- condor_q")
    argv = require_pool(arguments.name).command(command)
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606 - its exit code, its terminal and its Ctrl-C become ours


def _logs(arguments: argparse.Namespace) -> int:
    from regiondag.pool import logs
    from regiondag.pool.pool import choose_name, find_installed_pool, read_state

    if arguments.lines < 0:
        raise UsageError(f"-n {arguments.lines}: the number of lines cannot be negative")
    use_installed = arguments.name is None and read_state(choose_name(None)) is None
    folder = logs.find_log_folder(choose_name(arguments.name), find_installed_pool() if use_installed else None)
    for line in logs.read(logs.find_log(folder, arguments.daemon), arguments.lines, arguments.follow):
        print(line, flush=arguments.follow)
    return 0
