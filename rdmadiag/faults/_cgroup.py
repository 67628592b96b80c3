"""A control group of our own (v2) into which a process is moved, and back; mounted in the injection's folder where the node has none."""

from __future__ import annotations

from rdmadiag.faults import _host as host
from rdmadiag.faults._contract import Moves, Plan, Values
from rdmadiag.faults._steps import Change
from rdmadiag.faults._target import Target

_FIND = """root=/sys/fs/cgroup
if [ ! -e $root/cgroup.controllers ]; then
root=$PWD/cgroups; mkdir -p $root; [ -e $root/cgroup.controllers ] || mount -t cgroup2 none $root
fi"""


def steps(
    values: Values,
    controller: str,
    setting: str,
    file: str,
    counter: str,
    probe: str,
    first: str = ":",
    pattern: str = "",
) -> tuple[Change, Change]:
    """Return the steps that hold a process in a group with one setting (FILE=VALUE); they count `counter` of `file`.

    `first` is shell before it; `pattern` reads `file` where its lines are not NAME VALUE.
    """
    key, _, value = setting.partition("=")
    tree = Change(
        f"cgroup v2 with the controller {controller}",
        doing=f"""{_FIND}
echo $root > root
grep -qw {controller} $root/cgroup.controllers || {{ echo 'no cgroup v2 controller {controller} on this node' >&2; false; }}
grep -qw {controller} $root/cgroup.subtree_control || {{ echo +{controller} > $root/cgroup.subtree_control; : > enabled; }}""",
        undoing=f"""read -r root < root
if [ -e enabled ]; then echo -{controller} > $root/cgroup.subtree_control; rm enabled; fi
if [ $root = $PWD/cgroups ]; then umount $root; fi
rm root""",
        test="[ -s root ]",
    )
    member = Change(
        f"process {values['process']} in a cgroup with {setting}",
        doing=f"""{host.find_process(values, probe)}
read -r root < root
{first}
lives target.pid
echo $root$(sed -n 's/^0:://p' /proc/$pid/cgroup) > was
here=$root/rdmadiag-${{PWD##*/}}
mkdir $here
echo $here > group
echo "{value}" > $here/{key}
echo $pid > $here/cgroup.procs""",
        undoing="""read -r here < group
read -r was < was
while read -r member; do echo $member > $was/cgroup.procs || :; done < $here/cgroup.procs
gone 'grep -q . $here/cgroup.procs'
rmdir $here""",
        test='[ -s group ] && read -r here < group && [ -d "$here" ]',
        counting=f"read -r here < group && cat $here/{file}",
        pattern=pattern or rf"(?m)^(?P<name>{counter}) (?P<value>\d+)$",
    )
    return tree, member


def limited(
    target: Target, values: Values, controller: str, setting: str, hits: tuple[str, str], moved: tuple[str, str]
) -> Plan:
    """Return the plan that holds a process below one limit; `hits` and `moved` are file and name of both proofs in its group."""
    seen = probe(*moved)
    both = steps(values, controller, setting, *hits, seen)
    return host.plan(target, values, both, Moves("step", (moved[1] or "bytes",), probe=seen), hits=(hits[1],))


def probe(file: str, name: str) -> str:
    """Return shell that prints a value of the group's, or 0 before there is one; a file without names is bytes."""
    read = f"while read -r key value; do [ $key = {name} ] && n=$value; done < $here/{file}"
    if not name:
        name, read = "bytes", f"read -r n < $here/{file}"
    return f"n=0\nif [ -s group ] && read -r here < group; then {read}; fi\necho probe {name} $n"


def pressure(kind: str) -> str:
    """Return shell that prints how long all of the group's processes waited for a resource, in microseconds (PSI)."""
    read = f"while read -r word a b c total; do [ $word = some ] && n=${{total#total=}}; done < $here/{kind}.pressure"
    return f"n=0\nif [ -s group ] && read -r here < group; then {read}; fi\necho probe stalled_usec $n"
