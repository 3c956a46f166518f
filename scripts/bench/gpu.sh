#!/bin/sh
# Everything that is measured on a GPU, in less than nine minutes: scripts/bench/gpu.sh [--quick] [--only PART] [--json FILE]
# Then what cutting a network into shards costs one GPU, by items and, a ResNet-50 that is normalized by the whole batch, by examples; and where there are more,
# one training on 1, 2, 4 and 8 of them: its bits, strong and weak scaling, PyTorch's ways beside it (results/level3_gpus.json). --only ranks does that alone.
# --only costs measures what fine-tuning costs (results/costs-NAME.json), which is in no other run; it predicts, too,
# and does so without a GPU.
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
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

kept=$root/scripts/bench/results/level3_gpus.json
case " $* " in
*" --only ranks "*)
    if [ "$("$python" -m scripts.bench.level3.gpus)" = 0 ]; then
        echo "gpu: there is no GPU that CuPy can use; nvidia-smi shows which are there" >&2
        exit 75
    fi
    exec "$python" -m scripts.bench.level3 --only gpus --json "$kept"
    ;;
*" --only costs "*) exec "$python" -m scripts.bench.gpu.costs ;;
*" --only "* | *" --quick "*) exec "$python" -m scripts.bench.gpu "$@" ;;
esac
status=0
"$python" -m scripts.bench.gpu "$@" || status=$?
[ $status -ne 75 ] || exit 75
"$python" -m scripts.bench.level3 --only gpus --json "$kept" || status=$?
exit $status
