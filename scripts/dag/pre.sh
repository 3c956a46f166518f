#!/bin/sh
# PRE script of every node: pre.sh PYTHON CODE NODE RETRY
# Proposes the node's hyperparameters and writes its trial.json. Runs on the manager, may run twice.
# exit: 0 ready, 77 settled before (nothing to run), 4 this region cannot go on (no retry), else DAGMan retries the node
run=${0%/*}
python=/usr/local/libexec/regiondag/python # what provisioned managers have
[ -x "$python" ] || python=$1
# DAGMan starts up to DAGMAN_MAX_PRE_SCRIPTS of these at a time: one thread each
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
[ -r "$run/$2" ] && : >>"$run/manager.log" || exit 1
# Without site: thousands of these begin, and node/start.py adds it where a package is asked for.
exec "$python" -S "$run/$2" pre "$run" "$3" "$4" >>"$run/manager.log" 2>&1
