#!/usr/bin/env bash
# The main job on real input: a KV transfer between two SoftRoCE hosts, a fault at the switch between them, what became of it, and what
# `rdmadiag check` says. Where no lab can be made: of a captured node instead, and it says so.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
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

made=$(mktemp -d)
trap 'rdmadiag lab down demo >/dev/null 2>&1; rm -rf "$made"' EXIT
echo 'Two hosts with SoftRoCE devices and a switch between them:'
printf '\n$ rdmadiag lab up demo\n'
if ! rdmadiag lab up demo; then
  echo
  echo 'No lab could be made here (rdmadiag lab doctor says what is missing). What follows was captured elsewhere.'
  captured
  exit 0
fi

echo
echo 'A KV cache moves from one to the other by RDMA WRITE, and after its first request the switch loses all packets of the RDMA network for 8 s (40 s in all):'
words=(rdmadiag kv run --lab demo --layers 10 --tokens 256 --slots 64 --requests 100000 --seconds 40 --output "$made/result.jsonl")
printf '\n$ %s &\n' "${words[*]}"
"${words[@]}" >"$made/result" 2> >(tee "$made/progress" >&2) &
transfer=$!
until grep -q '^request 1:' "$made/progress" 2>/dev/null || ! kill -0 "$transfer" 2>/dev/null; do sleep 0.2; done
run rdmadiag inject blackout --for 8s --lab demo
wait "$transfer"
code=$?
echo
echo 'Its result:'
cat "$made/result"
printf '(exit code %s)\n' "$code"
echo
echo 'What that result proves:'
run rdmadiag check --from "$made/result.jsonl"
echo
echo "And the lab's host itself, now (one kernel, both devices):"
run rdmadiag lab exec demo -- "$PWD/.venv/bin/rdmadiag" check --window 2 --budget 120
exit 0
