#!/bin/sh
# Everything that is measured on a GPU, in less than eight minutes: scripts/bench/gpu.sh [--quick] [--json FILE]
#   PYTHON         the Python that has regiondag's libraries and CuPy (default: .venv's if it has CuPy, else python3)
#   TORCH_PYTHON   the Python that has PyTorch, where it is another one; without PyTorch there are no peers
# Exit code 75 says on one line what is missing.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
own=$root/.venv/bin/python

has() { "$1" -c "$2" 2>/dev/null; }

if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
elif has "$own" 'import importlib.util, sys; sys.exit(importlib.util.find_spec("cupy") is None)'; then
    python=$own
else
    python=python3
fi
if ! has "$python" 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "gpu: $python is no Python 3.11 or later; set PYTHON=/path/to/python3.12" >&2
    exit 75
fi
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m scripts.bench.gpu "$@"
