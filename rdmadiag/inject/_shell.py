"""The shell texts of an injection on a node: functions of steps, the watchdog, what arms it, its sign of life, the undoing.

They need sh, the usual small tools and /proc, no Python: under emulation that starts in 30 ms instead of a second, and nothing of
ours must live for a fault to come off. All files of an injection lie in ROOT/TAG on the node, in memory: a restart of the node
takes them away with what they undo. ROOT/on-NETDEV is a link to the injection that holds a netdev.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from rdmadiag.faults import Plan, Step, Table

ROOT = "/run/rdmadiag-inject"
GRACE_SECONDS = 3  # from the end of an injection's time to the watchdog's own undoing
ROOM = 16384  # bytes reserved in the node's memory for what the undoing writes
STOP_SECONDS = 60  # that reading the proofs and undoing may take the injector, before the watchdog does it
APPLY_SECONDS = 120  # that applying may take, before the time begins

FUNCTIONS = r"""
started() { # PID: sets start to its start time in ticks; fails when it is gone
  read -r stat 2>/dev/null < /proc/$1/stat || return 1
  set -- ${stat##*) }
  [ "$1" != Z ] && start=${20}
}
remember() { started $1 && echo "$1 $start" > $2; }
lives() { read -r pid since 2>/dev/null < $1 && started $pid && [ "$start" = "$since" ]; }
end_session() { # FILE: kill the whole session of the process in it, also when only its first process is gone
  if lives $1; then kill -9 -$pid 2>/dev/null || kill -9 $pid || :
  elif read -r pid since 2>/dev/null < $1 && ! started $pid; then kill -9 -$pid 2>/dev/null || :
  fi
  gone "lives $1"
}
ask_owner() { # LINE: what the owner of our table says to it; asked there, for another nft would wait for a moment without changes
  lives owner.pid || return 1
  : > nft.log
  echo "$1" >> nft
  wait_for "grep -q '^}' nft.log || grep -q Error nft.log" || return 1
  cat nft.log
  ! grep -q Error nft.log
}
end_owner() { if lives owner.pid; then kill -9 $pid || :; fi; gone 'lives owner.pid'; }
alive() { :; }
soon() { # SECONDS: fails when they have passed since limit was unset
  read -r up rest < /proc/uptime
  [ -n "$limit" ] || limit=$((${up%.*} + $1))
  alive
  [ ${up%.*} -lt $limit ] && sleep 0.05 3>&-
}
wait_for() { # TEST
  limit=
  until eval "$1"; do soon 60 || return 1; done
}
gone() { # TEST
  limit=
  while eval "$1"; do soon 15 || { echo "still there: $1" >&2; return 1; }; done
}
tell() { echo "<5>rdmadiag inject: $1" > /dev/kmsg; } 2>/dev/null
"""

_WATCHDOG = r"""
. ./functions
trap '' HUP INT
trap 'why="its watchdog was told to end"' TERM
remember $$ watchdog.pid
why=
if [ -e owned ]; then
  mkfifo nft
  exec 3<>nft
  setsid nft -i <nft >>nft.log 2>&1 3>&- &
  remember $! owner.pid
fi
read -r up rest < /proc/uptime
end=$((${up%.*} + $2))
read -r beat < beat
turn=0
echo armed > armed
while [ -z "$why" ]; do
  sleep 0.5 3>&-
  turn=$((turn+1))
  read -r up rest < /proc/uptime
  read -r seen 2>/dev/null < beat && [ -n "$seen" ] && beat=$seen
  read -r seen 2>/dev/null < until && [ -n "$seen" ] && end=$seen
  if [ ${up%.*} -ge $end ]; then why='its time was over'
  elif [ $((${up%.*} - beat)) -gt $1 ]; then why="its injector gave no sign of life for $1 s"
  elif [ $((turn % 6)) = 0 ] && [ -s renew ] && lives owner.pid && read -r line < renew; then echo "$line" >&3
  fi
done
rm -f room
echo "$why" > taking
sh ./count > counted 2>&1
exec 3>&-
sh ./undo > undone 2>&1
tell "$3: taken off by the watchdog: $why"
echo "$why" > over
"""


_GUARDED = "{ lives watchdog.pid && [ ! -s over ]; } || { echo 'its watchdog has ended' >&2; false; }"
_BEAT = "read -r up rest < /proc/uptime; echo ${up%.*} 1<> beat"  # in place: that needs no room


# A claim whose watchdog has ended is taken off by whoever comes next, with its own text, should the journal that knows of it be elsewhere.
_SWEEP = f"""if cd {ROOT} 2>/dev/null; then
for n in NETDEVS; do
  [ -L on-$n ] || continue
  other=$(readlink on-$n)
  [ -d "$other" ] || {{ rm -f on-$n; continue; }}
  (
    cd $other && . ./functions && [ -e armed ] && ! lives watchdog.pid && sh ./undo > undone && grep -q '^end 0' undone
  ) >/dev/null 2>&1 && rm -rf $other
done
fi"""
_CLAIM = """for n in NETDEVS; do
  ln -sn TAG on-$n 2>/dev/null && continue
  echo busy $n $(readlink on-$n)
  for m in on-*; do if [ "$(readlink $m)" = TAG ]; then rm $m; fi; done
  rmdir TAG
  exit 0
done"""


def _file(name: str, text: str) -> str:
    end = "RDMADIAG-END-OF-FILE"
    return f"cat > {name} <<'{end}'\n{text}\n{end}"


def undo_text(steps: Sequence[Step], netdevs: Sequence[str], drain_seconds: float) -> str:
    """Return the text that undoes all steps in reverse order and says of each how that went; it may run more than once."""
    lines = [". ./functions", "bad=0"]
    for number, step in reversed(list(enumerate(steps))):
        lines += [
            # On lines of its own: in a shell whose end a && or an `if` waits for, set -e is without effect.
            "(set -e",
            step.undo(),
            ") 2>why </dev/null",
            f"if [ $? = 0 ]; then echo 'undone {number}'; else bad=1; echo \"failed {number} $(head -c 300 why | tr '\\n' ' ')\"; fi",
        ]
        if drain_seconds and number == len(steps) - 1:
            lines.append(f"sleep {drain_seconds:g}")
    claims = " ".join(f"../on-{name}" for name in netdevs)
    lines.append(f"[ $bad = 1 ] || {f'rm -f {claims}' if claims else ':'}")
    lines.append("echo end $bad")
    return "\n".join(lines)


def arm_text(tag: str, title: str, plan: Plan, lease_seconds: float, for_seconds: float) -> str:
    """Return the text that claims the netdevs and starts the watchdog; prints `busy NETDEV TAG` when one is taken."""
    owned = any(isinstance(step, Table) for step in plan.steps)
    seconds = _end(for_seconds) + APPLY_SECONDS
    lines = [
        "set -e",
        "umask 077",
        f"mkdir -p {ROOT}",
        f"cd {ROOT}",
        f"mkdir {tag}",
        _CLAIM.replace("TAG", tag).replace("NETDEVS", " ".join(plan.netdevs)),
        f"cd {tag}",
        _file("functions", FUNCTIONS),
        _file("watchdog", _WATCHDOG),
        _file("undo", undo_text(plan.steps, plan.netdevs, plan.drain_seconds)),
        _file("count", count_text(plan.steps)),
        _BEAT,
        ": > owned" if owned else "",
        # Neither blocks nor inodes may be wanting for the undoing, should somebody fill the node's memory up.
        f"for f in undone why taking over counted; do : > $f; done; head -c {ROOM} /dev/zero > room",
        f"setsid sh ./watchdog {lease_seconds:g} {seconds} {shlex.quote(title)} </dev/null >watchdog.log 2>&1 &",
        ". ./functions",
        "wait_for '[ -s armed ]'",
        "echo armed",
    ]
    return "\n".join(line for line in lines if line)


def _end(for_seconds: float) -> int:
    return math.ceil(for_seconds) + GRACE_SECONDS


def do_text(tag: str, title: str, steps: Sequence[Step], for_seconds: float) -> str:
    """Return the text that does all steps in order and confirms them; prints `did N` for each, and stops at the first that fails.

    Its time begins when all are done.
    """
    lines = ["set -e", f"cd {ROOT}/{tag}", ". ./functions", f"tell {shlex.quote(title)}"]
    lines.append(
        "alive() { echo ${up%.*} 1<> beat; }"
    )  # a step that waits for a program on a busy node is no sign of death
    lines.append(f"most={math.ceil(for_seconds) + 60}")
    for number, step in enumerate(steps):
        lines += [
            _BEAT,
            _GUARDED,
            step.do(),
            f"{{ {step.holds()}\n}} || {{ echo 'it is not in force' >&2; false; }}",
            f"echo did {number}",
        ]
    lines += [_GUARDED, _BEAT, f"echo $((${{up%.*}} + {_end(for_seconds)})) > until"]
    return "\n".join(lines)


KERNEL = """for f in /proc/sys/kernel/tainted /sys/kernel/warn_count /sys/kernel/oops_count; do
read -r n 2>/dev/null < $f && echo kernel $n; done"""
"""Prints what changes when the kernel warns."""


def beat_text(tag: str, steps: Sequence[Step]) -> str:
    """Return the sign of life, which also prints how things are: watchdog, kernel warnings, steps that no longer hold."""
    lines = [
        f"cd {ROOT}/{tag} || exit 0",
        ". ./functions",
        _BEAT,
        KERNEL,
        "[ -s own.pid ] && read -r pid < own.pid && echo own $pid",
        *(f"{{ {step.holds()}\n}} || echo lost {number}" for number, step in enumerate(steps)),
        # After the steps: what the watchdog has taken off meanwhile, or took with it, was lost by its doing.
        "[ -s taking ] && read -r line < taking && echo over $line",
        "lives watchdog.pid && echo watchdog yes",
    ]
    return "\n".join(lines)


def count_text(steps: Sequence[Step]) -> str:
    """Return the text that prints what each step counted, below a line `step N`."""
    lines = [". ./functions"]
    for number, step in enumerate(steps):
        if step.count():
            lines += [f"echo step {number}", step.count()]
    return "\n".join(lines)


def revert_text(tag: str, undo: str, title: str, why: str) -> str:
    """Return the text that ends the watchdog and undoes, from what the node has of it, else from the journal's own text."""
    return "\n".join(
        [
            f"mkdir -p {ROOT}/{tag} && cd {ROOT}/{tag} || exit 1",
            f"[ -s functions ] || {_file('functions', FUNCTIONS)}",
            f"[ -s undo ] || {_file('undo', undo)}",
            "rm -f room",
            ". ./functions",
            "if [ -e watchdog.pid ]; then end_session watchdog.pid; fi",
            "setsid -w sh ./undo > undone 2>&1",  # once begun it comes to its end without us
            "cat undone",
            f"tell {shlex.quote(f'{title}: taken off: {why}')}",
        ]
    )


def counted_text(tag: str, last: bool) -> str:
    """Return the text that prints what was counted: now, or by the watchdog when it took the fault off.

    With `last` the watchdog's time is put off for as long as reading and undoing may take.
    """
    more = f"else {_BEAT}; echo $((${{up%.*}} + {STOP_SECONDS})) > until" if last else "else :"
    return "\n".join(
        [
            f"cd {ROOT}/{tag} || exit 0",
            ". ./functions",
            f"if [ -s taking ]; then wait_for '[ -s over ]'; {more}; fi",
            "if [ -s counted ]; then cat counted; else sh ./count; fi",
        ]
    )


def remove_text(tag: str) -> str:
    """Return the text that takes the files of an injection away."""
    return f"rm -rf {ROOT}/{tag}"


def sweep_text(netdevs: Sequence[str]) -> str:
    """Return the text that takes off what holds netdevs though its watchdog has ended."""
    return _SWEEP.replace("NETDEVS", " ".join(netdevs))


def state_text(tag: str, netdevs: Sequence[str]) -> str:
    """Return the text that prints what of a node this injection may change, in lines that are compared before and after."""
    # Statistics, lifetimes and neighbours change by themselves; tables and routes of others are none of ours. Few processes:
    # each takes 30 ms in an emulated guest, and longer in a busy one.
    lines = [f"nft list tables 2>/dev/null | grep rdmadiag_{tag}"]
    if netdevs:
        asks = {
            "tc -batch": ["qdisc show dev {}"],
            "ip -o -batch": ["link show dev {}", "addr show dev {}", "route show dev {}"],
            "ip -6 -o -batch": ["route show dev {}"],
        }
        lines.append("{")
        for tool, questions in asks.items():
            lines += [f"{tool} - <<'END'", *(q.format(name) for name in netdevs for q in questions), "END"]
        lines.append("} | sed 's/ valid_lft .*//; s/ expires [0-9]*sec//'")
    return "\n".join(lines)
