#!/bin/sh
# One training on a worker: train.sh CODE DEVICE, beside trial.json and its inputs; DEVICE gpu: on a GPU or not at all
# exit: nnlib's codes (0 trained, 3 diverged, 4 bad input, 75 the machine's fault, 143 stopped by SIGTERM)
# Every output exists from the start, so that a job that is stopped early still brings back what there is.
for output in result.json log.jsonl model.nc; do
    [ -e "$output" ] || : >"$output"
done
python=/usr/local/libexec/regiondag/python # what provisioned workers have
[ -x "$python" ] || python=$(command -v python3) || {
    echo "train.sh: no Python on this machine" >&2
    exit 75
}
exec "$python" "$1" train --trial trial.json --device "$2"
