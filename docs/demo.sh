#!/usr/bin/env bash
# The main job on real input: a KV transfer between two SoftRoCE hosts, two faults of different kinds, what became of it, and what
# `rdmadiag check` says. Where no lab can be made: of a captured node instead, and it says so.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
RUNS=rdmadiag-runs
run() { printf '\n$ %s\n' "$*"; "$@"; printf '(exit code %s)\n' "$?"; }

captured() {
  echo 'A real SoftRoCE host whose peer stopped posting receives, captured while it failed:'
  run rdmadiag check --from tests/data/nodes/rxe-rnr
  echo
  echo 'A log that somebody pasted, with the limit of the shell that ran the job:'
  run rdmadiag check --from tests/data/reports/06-nccl-tests-206-memlock
  echo
  echo 'And this machine, now:'
  run rdmadiag check
}

if ! said=$(rdmadiag lab doctor 2>&1); then
  printf '%s\n\nNo lab can be made here. What follows was captured elsewhere.\n' "$said"
  captured
  exit 0
fi

cat <<'END'
Two hosts with SoftRoCE devices and a switch between them. A KV cache moves from one to the other by RDMA WRITE, the end of each
plane told by immediate data. First the switch loses 2 % of the packets for 8 s. Later the receiving process stands still for 12 s, so
that no receive is posted any more and the sender's RNR retries run out. (Between one and three minutes.)
END
printf '\n$ %s\n' "rdmadiag run loss-then-rnr --report $RUNS"
said=$(mktemp)
trap 'rm -f "$said"' EXIT
rdmadiag run loss-then-rnr --report "$RUNS" | tee "$said"
code=${PIPESTATUS[0]}
printf '(exit code %s)\n' "$code"
folder=$(tail -n 1 "$said" | sed 's/^ *//')
[ -f "$folder/report.html" ] || exit 1

echo
echo 'What the evidence says without the scenario. The packets that both hosts captured until the loss was over:'
captures="$folder/evidence/captures"
printf '\n$ %s\n' "rdmadiag pcap --tap $captures/v1.pcapng.gz --tap $captures/v2.pcapng.gz | grep -A 4 wire-tap-loss"
rdmadiag pcap --tap "$captures/v1.pcapng.gz" --tap "$captures/v2.pcapng.gz" | grep -A 4 wire-tap-loss
echo
echo 'The node afterwards (both hosts of this lab are one kernel; counters count from before the workload):'
run rdmadiag check --previous "$folder"/evidence/before/*.tar.gz --from "$folder"/evidence/after/*.tar.gz
echo
echo "The report, for a browser: $PWD/$folder/report.html"
exit "$code"
