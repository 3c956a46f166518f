"""`regiondag trainer`: try a program as a trial, before a study is made of it."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_verb, number, run_verb
from regiondag.errors import UsageError

if TYPE_CHECKING:
    from regiondag.study.space import Parameter, Value
    from regiondag.trainers.examine import Subject
    from regiondag.trainers.kit import Finding

HELP = "try a program as a trial, in all that may befall it"
DESCRIPTION = """Programs that train in nnlib's place (`trainer` in study.yaml) are told their trial, report a metric,
and have to live with what happens to jobs. Nothing here needs a pool."""
TEST = """Run a program as its jobs would, by the worker's own code, and say what it does right and wrong: at the start,
at another point of the space and at its ends, with the same seed twice, told to leave by SIGTERM and started again,
with its largest process killed, without a GPU, as the last training, and with a full disk (by a limit: no file of it
may grow). A line a try: good; mind, what a study can live with; WRONG, what it cannot.

The program is that of a study, or any command after `--`. Its jobs have none of your environment variables but PATH,
HOME, USER, LANG and those that name GPUs, as on a worker. They run in a temporary folder, which is removed, and no
process of theirs stays; what a program writes elsewhere by itself is not seen. Exit code 0: a study can work with it;
1: something is WRONG."""
EPILOG = """examples:
  regiondag trainer test study.yaml --region Germany
  regiondag trainer test --metric auc --files train.py --set lr=0.1,0.001 -- \\
      python train.py --lr {lr} --epochs {epochs}"""
USAGE = """regiondag trainer test [--region NAME] [...] [study.yaml]
       regiondag trainer test --metric NAME [--min] [--files PATH ...] [--set NAME=VALUE,...] [...] -- COMMAND ..."""
PATIENCE = 120.0  # seconds after SIGTERM: as long as a spot instance waits
WIDTH = 80  # columns at most, in files, too: sentences are to be read
ENDING = (signal.SIGTERM, signal.SIGHUP)
LONGEST = 7 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    test = add_verb(verbs, "test", _test, "run it as its jobs would, and say what is right and wrong")
    test.description, test.usage = TEST, USAGE
    test.add_argument("words", nargs="*", metavar="study.yaml", help="a study (default: that of this folder)")
    test.add_argument(
        "--region", metavar="REGION", help="the region whose trials it is tried with (default: the first)"
    )
    test.add_argument(
        "--epochs",
        type=number(int, 1, 1_000_000),
        metavar="N",
        help="that it is told to train (default: the study's fewest, at most 2)",
    )
    test.add_argument(
        "--timeout",
        type=number(float, 0.1, LONGEST),
        default=600.0,
        metavar="SECONDS",
        help="in which each job has to end (default: %(default)g)",
    )
    test.add_argument(
        "--python", default=sys.executable, metavar="PROGRAM", help="the Python of jobs (default: this one)"
    )
    other = test.add_argument_group("of a command, after --")
    other.add_argument("--metric", metavar="NAME", help="what it reports")
    other.add_argument("--min", action="store_true", help="less of the metric is better")
    other.add_argument("--files", nargs="+", default=[], metavar="PATH", help="files and folders that go with the job")
    other.add_argument(
        "--environment", default="", metavar="FILE", help="the packages that it needs: requirements.txt, env.tar.gz"
    )
    other.add_argument(
        "--set",
        type=_hyperparameter,
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        dest="space",
        help="a hyperparameter, and values at which it is tried; may come several times",
    )


run = run_verb


def _hyperparameter(text: str) -> Parameter:
    from regiondag.study.space import Choice

    name, _, values = text.partition("=")
    options = dict.fromkeys(map(_value, values.split(",")))
    if not name.isidentifier() or "" in options:
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: NAME=VALUE,VALUE such as lr=0.1,0.001")
    return Choice(name, tuple(options))


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _of_study(arguments: argparse.Namespace) -> Subject:
    from regiondag.config.load import load_config
    from regiondag.run.lookup import find_region
    from regiondag.run.study_folder import find_study
    from regiondag.study.constraints import parse_constraints
    from regiondag.trainers.examine import Subject
    from regiondag.trainers.points import least_budget
    from regiondag.trainers.trainer import programs_of

    if len(arguments.words) > 1:
        arguments.refuse("a command needs --metric NAME: what it reports")
    for name in ("min", "files", "space", "environment"):
        if getattr(arguments, name):
            arguments.refuse(f"--{'set' if name == 'space' else name}: only of a command, with --metric NAME")
    file = find_study(Path(*arguments.words)).study
    config = load_config(file)
    programs = programs_of(config.regions)
    if not programs:
        raise UsageError(f"{file}: no region has a trainer: nnlib trains them all")
    names = {slug: region.name for slug, (region, _) in programs.items()}
    region, program = programs[find_region(names, arguments.region) if arguments.region else next(iter(programs))]
    search = region.search
    return Subject(
        program,
        region.metric,
        replace(region.train, epochs=arguments.epochs or least_budget(search.space, region.train.epochs)),
        region.name,
        search.space,
        parse_constraints(search.constraints, [parameter.name for parameter in search.space]),
        region.job.gpus > 0,
    )


def _of_command(arguments: argparse.Namespace) -> Subject:
    from nnlib.contract import Metric, TrainSettings
    from regiondag.config.program_section import read_command
    from regiondag.trainers.examine import Subject
    from regiondag.trainers.points import least_budget

    if not arguments.words:
        arguments.refuse("--metric: only of a command, after --")
    if arguments.region is not None:
        arguments.refuse("--region: only of a study")
    metric, space = Metric(arguments.metric, arguments.min), tuple(arguments.space)
    program = read_command(Path.cwd(), arguments.words, arguments.files, metric, space, arguments.environment)
    epochs = arguments.epochs or least_budget(space, TrainSettings().epochs)
    return Subject(program, metric, TrainSettings(epochs=epochs), space=space)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _report(subject: Subject, findings: list[Finding]) -> int:
    from nnlib.util.columns import fold_text
    from nnlib.util.terminal import width_of
    from regiondag.trainers.kit import Verdict, holds
    from regiondag.util.text import spell_out

    room = min(width_of(sys.stdout), WIDTH)
    first, second = max(len(one.tried) for one in findings), max(len(one.verdict) for one in findings)
    for line in fold_text(spell_out(f"{subject.region}: {' '.join(subject.program.command)}"), room, "  "):
        print(line)
    for finding in findings:
        before = f"{finding.tried:{first}}  {finding.verdict:{second}}  "
        for line in fold_text(spell_out(finding.text), room - len(before)):
            print(f"{before}{line}")
            before = " " * len(before)
    wrong = sum(finding.verdict is Verdict.WRONG for finding in findings)
    print(f"{wrong} WRONG: mend that first" if wrong else "a study can work with this program")
    return 0 if holds(findings) else 1


def _test(arguments: argparse.Namespace) -> int:
    import tempfile

    from nnlib.util.process import catch_signals
    from nnlib.worker.container import find_apptainer
    from regiondag.generate.bundle import pack_worker
    from regiondag.trainers.examine import examine
    from regiondag.trainers.fetch import fetch_all
    from regiondag.trainers.trying import Bench

    subject = _of_study(arguments) if arguments.metric is None else _of_command(arguments)
    if subject.program.container and not find_apptainer():
        tell("no Apptainer here: it is tried outside of its image, with the programs of this machine")
        subject = replace(subject, program=replace(subject.program, container=None))
    code = pack_worker()
    findings: list[Finding] = []
    with catch_signals(ENDING, _interrupt), tempfile.TemporaryDirectory(prefix="regiondag-") as name:
        folder = Path(name).resolve()
        archive = folder / code.name
        archive.write_bytes(code.content)
        inputs = fetch_all(subject.program.downloads, folder / "downloads")
        patience = min(PATIENCE, arguments.timeout)
        bench = Bench(folder, arguments.python, archive, arguments.timeout, patience, inputs)
        for finding in examine(subject, bench):
            findings.append(finding)
            if finding.verdict != "good":
                tell(f"  {finding.verdict}")
    return _report(subject, findings)
