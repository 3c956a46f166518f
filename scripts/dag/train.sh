#!/bin/sh
# One training on a worker: train.sh CODE DEVICE [TIME], beside trial.json and its inputs
# DEVICE gpu: on a GPU or not at all. After TIME (such as 1800s) it is saved and left with 85, to be started again.
# exit: nnlib's codes (0 trained, 3 diverged, 4 bad input, 75 the machine's fault, 85 saved, 143 stopped by SIGTERM)
# Every output exists from the start: an eviction brings back all of them or none.
for output in result.json log.jsonl checkpoint.nc scores.npy model.nc floor.nc checkpoint.zip model.zip; do
    [ -e "$output" ] || : >"$output"
done
python=/usr/local/libexec/regiondag/python # what provisioned workers have
if [ -e python.bundle ]; then # job.python: bundle
    python=$(sh python.bundle) || exit 75
    export PYTHONNOUSERSITE=1
elif [ ! -x "$python" ]; then
    python=$(command -v python3) || {
        echo "train.sh: no Python on this machine; set job.python: bundle" >&2
        exit 75
    }
fi
# HTCondor signals this process alone, so it has to become the training.
exec "$python" "$1" train --trial trial.json --device "$2" ${3:+--checkpoint-every "$3"}
