#!/usr/bin/env bash
# The main job on real input: what `rdmadiag check` says of a captured node (the lab comes later).
set -u
cd "$(dirname "$0")/.."
run() { printf '\n$ %s\n' "$*"; .venv/bin/"$@"; printf '(exit code %s)\n' "$?"; }
echo 'A real SoftRoCE host whose peer stopped posting receives, captured while it failed:'
run rdmadiag check --from tests/data/nodes/rxe-rnr
echo
echo 'A log that somebody pasted, with the limit of the shell that ran the job:'
run rdmadiag check --from tests/data/reports/06-nccl-tests-206-memlock
echo
echo 'And this machine, now:'
run rdmadiag check
exit 0
