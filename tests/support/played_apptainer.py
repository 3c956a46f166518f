"""An Apptainer that is played: a script that says what it was asked, and starts the program outside of any image."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPT = """#!{python}
import os, shutil, signal, subprocess, sys
words = sys.argv[1:]
options = {{"--workdir", "--home", "--bind", "--pwd"}}
while words[0].startswith("-") or words[0] == "exec":
    words = words[2 if words[0] in options else 1 :]
image, *command = words
print("asked:", *sys.argv[1:-len(command)])
if image.endswith("broken"):
    sys.exit(print("FATAL:   container creation failed: no such namespace") or 255)
if not shutil.which(command[0]):
    sys.exit(print(f'FATAL:   "{{command[0]}}": executable file not found in $PATH') or 255)
inside = subprocess.Popen(command)
layer = subprocess.Popen(["sleep", "60"], process_group=0)  # the image's file system, which outlives a SIGKILL
signal.signal(signal.SIGTERM, lambda *_: inside.terminate())
code = inside.wait()
if code < 0:
    os.kill(os.getpid(), -code)
layer.kill()
sys.exit(code)
"""


def write_apptainer(folder: Path) -> Path:
    """Write the program `apptainer` into a folder that is to be on PATH, and return the folder."""
    folder.mkdir(exist_ok=True)
    program = folder / "apptainer"
    program.write_text(SCRIPT.format(python=sys.executable))
    program.chmod(0o755)
    return folder
