"""A list of packages becomes an environment, built by pip or uv once and kept; the same packages give the same bits."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nnlib.util.environment import SETTINGS
from nnlib.util.files import locked, replacing
from nnlib.util.memory import show_bytes
from nnlib.util.os_errors import describe
from nnlib.util.packed import list_files, pack
from regiondag.errors import RegiondagError
from regiondag.study.program import Environment
from regiondag.util.user_dirs import cache_dir, make_dir

Tell = Callable[[str], None]

BUILD = 1  # of what is kept: another way to build makes other archives
PACKAGES = "packages.txt"  # in the archive: what was installed
IN_PLACE = ("bin", "share", "etc")  # what pip puts beside packages, and a virtual environment above them
NOT_READ = frozenset({"__pycache__", "build", "dist", "runs", "node_modules"})  # what building a package leaves in it
UNUSED = 90 * 86400  # seconds after which what was built is removed
UV_NOTE = "uv_cache.json"  # beside a package's metadata
LAST_LINES = 3  # of pip's, where it fails
STEPS = re.compile(r"\s*((?:Collecting|Downloading|Using|Building|Installing|Resolved|Prepared) .{,160})")
LAUNCHER = b"#!/bin/sh\n'''exec' \"$(dirname \"$0\")/python\" \"$0\" \"$@\"\n' '''\n"  # sh and Python both read it


def version_for(environment: Environment) -> str:
    """Return the version of Python that a list is built for."""
    return environment.python or "{}.{}".format(*sys.version_info)


def key_of(environment: Environment) -> str:
    """Return the SHA-256 of all that decides what is built: the lists, what lies here of it, version and platform."""
    digest = hashlib.sha256()
    made_for = [version_for(environment), environment.platform or f"{sys.platform}-{platform.machine()}"]
    digest.update(json.dumps([BUILD, *made_for]).encode())
    folder = environment.file.parent
    for path in dict.fromkeys(_list_sources(environment.file)):
        digest.update(json.dumps([os.path.relpath(path, folder), path.stat().st_size]).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def build(environment: Environment, tell: Tell) -> Path:
    """Return the archive of a list of packages, which is built unless it was before.

    Raises RegiondagError with pip's last lines where it fails. Nothing is left half made.
    """
    key = key_of(environment)

    def make(work: Path, archive: Path) -> None:
        _build(environment, work, archive, key, tell)

    return build_once(f"{key}.zip", str(environment.file), make)


def build_once(name: str, what: str, make: Callable[[Path, Path], None]) -> Path:
    """Return a file of the cache that `make(work, file)` makes, in a folder to work in, unless it was made before.

    Whoever asks for the same meanwhile waits. Nothing is left half made; RegiondagError where it cannot be written.
    """
    folder = cache_dir() / "environments"
    make_dir(folder)
    file = folder / name
    work = file.with_suffix(".build")
    with locked(file.with_suffix(".lock")):
        if not file.exists():
            shutil.rmtree(work, ignore_errors=True)  # of one that was killed
            try:
                work.mkdir()
                make(work, file)
            except OSError as error:
                raise RegiondagError(f"{what} could not be built: {describe(error)}") from error
            finally:
                shutil.rmtree(work, ignore_errors=True)
            remove_unused(folder)
        os.utime(file)
    return file


def _build(environment: Environment, work: Path, archive: Path, key: str, tell: Tell) -> None:
    started = time.monotonic()
    tell(f"environment: {environment.file.name} is built for Python {version_for(environment)}")
    _install(environment, work, tell)
    _forget_times(work)
    if version_for(environment) == version_for(Environment(environment.file)):
        tell("environment: compiling")
        compile_modules(work)
    installed = list_files(work)
    for name, path in installed.items():
        if name.startswith("bin/"):
            _relocate(path)
    version = version_for(environment)
    files: dict[str, Path | bytes] = {_place(name, version): path for name, path in installed.items()}
    files[PACKAGES] = "".join(f"{line}\n" for line in _installed(work)).encode()
    files[SETTINGS] = f"include-system-site-packages = false\nversion = {version}\n".encode()
    tell(f"environment: packing {len(files):,} files")
    with replacing(archive) as part:
        pack(files, part, key, compressed=True)
    tell(f"environment: {show_bytes(archive.stat().st_size)} in {time.monotonic() - started:.0f} s")


def _install(environment: Environment, work: Path, tell: Tell) -> None:
    """Install into `work`; what pip prints on the way is told, and where it fails its last lines."""
    command, last = _command(environment, work), list[str]()
    with subprocess.Popen(
        command,
        cwd=environment.file.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                if step := STEPS.match(line):
                    tell(f"environment: {step[1].partition(' (from ')[0]}")
                if line.strip() and not line.startswith("[notice]"):
                    last = [*last, line.strip()][-LAST_LINES:]
            code = process.wait()
        finally:
            process.terminate()  # at Ctrl-C, which it may have heard, too
            process.wait()
    if code != 0:
        said = " / ".join(last) or "it said nothing"
        raise RegiondagError(
            f"{environment.file}: {_name_of(command)} could not install it (exit code {code}): {said:.1500}"
        )


def _command(environment: Environment, work: Path) -> list[str]:
    """Return the call of pip, or where there is none of uv. The user's configuration of either counts."""
    other = ["--python-version", version_for(environment), "--only-binary", ":all:"]
    if importlib.util.find_spec("pip"):
        words = [sys.executable, "-m", "pip", "install", "--no-compile", "--no-input", "--no-user"]
        words += ["--disable-pip-version-check", "--progress-bar", "off"]
        platforms = ["--platform", environment.platform] if environment.platform else []
    elif uv := shutil.which("uv"):
        words = [uv, "pip", "install", "--python", sys.executable, "--no-progress"]
        platforms = ["--python-platform", environment.platform] if environment.platform else []
    else:
        raise RegiondagError(
            f"{environment.file}: neither pip nor uv is here to build it; next: {sys.executable} -m ensurepip"
        )
    foreign = environment.platform or version_for(environment) != version_for(Environment(environment.file))
    return [*words, *(other if foreign else []), *platforms, "--target", str(work), "-r", environment.file.name]


def _name_of(command: list[str]) -> str:
    return "pip" if "-m" in command else "uv"


def _forget_times(work: Path) -> None:
    """Remove what uv notes of the time at which a package was made, or the same packages would give other bits."""
    (work / ".lock").unlink(missing_ok=True)
    for note in work.glob(f"*.dist-info/{UV_NOTE}"):
        record = note.with_name("RECORD")
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        record.write_text("".join(line for line in lines if f"/{UV_NOTE}," not in line), encoding="utf-8")
        note.unlink()


def compile_modules(work: Path) -> None:
    """Compile all modules, so that no job has to; by their contents, as times differ. Those that cannot be are left."""
    words = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    words += ["-s", str(work), str(work)]  # names in tracebacks begin with the package
    subprocess.run(words, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, check=False)


def _place(name: str, version: str) -> str:
    """Return where a file that pip has installed lies in a virtual environment."""
    above = name.split("/")[0] in IN_PLACE and "/" in name
    return name if above else f"lib/python{version}/site-packages/{name}"


def _relocate(script: Path) -> None:
    """Let a script of Python's be run by the Python beside it, wherever that is."""
    first, _, rest = script.read_bytes().partition(b"\n")
    if first.startswith(b"#!") and b"python" in first:
        script.write_bytes(LAUNCHER + rest)


def _installed(work: Path) -> Iterator[str]:
    """Yield what was installed, by name."""
    names = (path.name.removesuffix(".dist-info").partition("-") for path in work.glob("*.dist-info"))
    return iter(sorted(f"{name}=={version}" for name, _, version in names))


def _list_sources(file: Path) -> Iterator[Path]:
    """Yield a list of packages, and what it names that lies here: other lists, files and folders of packages."""
    waiting, seen = [file], set()
    while waiting:
        one = waiting.pop(0)
        if one in seen:
            continue
        seen.add(one)
        yield one
        for line in _lines(one):
            listed = re.match(r"(-r|-c|--requirement|--constraint)\b", line)
            for path in _paths_in(line, file.parent if not listed else one.parent):
                if listed and path.is_file():
                    waiting.append(path)
                else:
                    yield from _files_of(path)


def _lines(file: Path) -> Iterator[str]:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RegiondagError(f"{file}: {error.reason}, legal: a list of packages in UTF-8") from None
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if re.match(r"(-e|--editable)\b", line):
            raise RegiondagError(f"{file}: {line:.80}: what is editable stays here; name its folder without -e")
        yield line


def _paths_in(line: str, folder: Path) -> Iterator[Path]:
    for word in re.split(r"[\s=@]+", line):
        name = unquote(urlsplit(word).path) if word.startswith("file:") else word.partition("[")[0]
        if name and not name.startswith("-"):
            with suppress(OSError, ValueError):
                path = folder / name
                if path.exists():
                    yield path


def _files_of(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(one for one in folders if one not in NOT_READ and not one.startswith("."))
        folders[:] = [one for one in folders if not one.endswith(".egg-info")]
        yield from (Path(folder, name) for name in sorted(names) if Path(folder, name).is_file())


def remove_unused(folder: Path) -> None:
    """Remove what no run has asked for in a long time."""
    for path in folder.glob("*"):
        with suppress(OSError):
            if path.suffix not in (".lock", ".build") and time.time() - path.stat().st_mtime > UNUSED:
                path.unlink()
                path.with_suffix(".lock").unlink(missing_ok=True)
