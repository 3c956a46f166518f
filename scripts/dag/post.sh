#!/bin/sh
# POST script of every node: post.sh PYTHON CODE NODE RETURN RETRY MAX_RETRIES DAG_STATUS JOBID
#           of the last one: post.sh PYTHON CODE report DAG_STATUS [SLUG]
# Settles the job's outcome into the region's journal. Runs on the manager, may run twice.
# exit: 0 settled, 4 this region cannot go on (no retry), 75 the machine's fault: DAGMan retries the node
run=${0%/*}
python=/usr/local/libexec/regiondag/python # what provisioned managers have
[ -x "$python" ] || python=$1
[ -r "$run/$2" ] && : >>"$run/manager.log" || exit 1
code=$2
shift 2
# Without site: thousands of these begin, and node/start.py adds it where a package is asked for.
exec "$python" -S "$run/$code" post "$run" "$@" >>"$run/manager.log" 2>&1
