"""A host's memory is taken by somebody else, down to a rest: page cache goes, allocations wait."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values, Worker
from rdmadiag.faults import _host as host

TITLE = "Another process takes a host's free memory"
REACH = "host"
PARAMETERS = (host.HOST, Parameter("rest_mib", 256.0, "memory that is left available", "MiB", 64, 1 << 20))
SIGNS = (
    "MemAvailable falls, /proc/pressure/memory rises; registering memory becomes slow or fails (ENOMEM)",
    "the process that takes it is the first that the kernel would kill (oom_score_adj 1000)",
)
# A file in memory: it is there at once, needs no program, and goes with its mount.
_LOOP = """echo 1000 > /proc/$$/oom_score_adj
mkdir -p memory
mount -t tmpfs -o size=100% none memory
n=0
while :; do
  while read -r key value unit; do [ $key = MemAvailable: ] && free=$((value/1024)); done < /proc/meminfo
  if [ $free -gt $1 ]; then
    more=$((free-$1)); [ $more -le 64 ] || more=64; n=$((n+1))
    dd if=/dev/zero of=memory/$n bs=1M count=$more 2>/dev/null; taken=$((taken+more))
  fi
  echo "{\\"taken_mib\\": ${taken:-0}}"
  [ $free -gt $1 ] || sleep 1
done"""
DIAGNOSIS = Diagnosis(
    ("memory-nearly-full",),
    "The kernel says how much memory is available",
    parameters={"rest_mib": 100.0},
    look_seconds=25.0,
)


def plan(target: Target, values: Values) -> Plan:
    """Fill a file system in memory, in a mount namespace of a process: it goes with that process."""
    words = ("unshare", "-m", "sh", "-c", _LOOP, "fill", f"{values['rest_mib']:.0f}")
    worker = Worker("a process that fills memory", argv=words)
    probe = "while read -r key value unit; do [ $key = MemAvailable: ] && echo probe available_mib $((value/1024)); done < /proc/meminfo"
    return host.plan(target, values, (worker,), Moves("file", ("available_mib",), probe=probe), hits=("taken_mib",))
