"""A peer's process dies and comes back under the same name, with nothing of what it knew: a supervisor's restart."""

from rdmadiag.faults import Change, Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _host as host

TITLE = "A process is killed and started again with the same command line"
REACH = "host"
PARAMETERS = (host.HOST, host.PROCESS, Parameter("after_ms", 500.0, "time between the two", "ms", 0, 600000))
EXAMPLE = {"process": "1"}
SIGNS = (
    "as with process-killed; then an endpoint of the same name with other QPNs, PSNs and rkeys",
    "what was sent with old keys is refused (WC 10) or lost (WC 12), never taken for new",
)
# Words and environment are NUL-ended, so xargs hands them on whole.
_AGAIN = """cd "$1" || exit 1
exec xargs -0 -r -a "$2/environment" sh -c 'here=$1 user=$2; shift 2
[ $user = 0:0 ] && as= || as="/usr/bin/setpriv --reuid ${user%:*} --regid ${user#*:} --clear-groups"
exec xargs -0 -a "$here/words" env -i "$@" $as' sh "$2" "$3"
"""
DIAGNOSIS = Diagnosis(
    ("peer-process-gone",),
    "As with process-killed: the connection ended; that a new process came is seen only when one connects again",
    parameters={"process": "rdma-server"},
)


def plan(target: Target, values: Values) -> Plan:
    """Kill it and start its command line again, in its folder, environment and user; the new process stays."""
    change = Change(
        f"process {values['process']} killed and started again",
        doing=f"""{host.find_process(values, host.process_probe())}
lives target.pid
cat /proc/$pid/cmdline > words
cat /proc/$pid/environ > environment
at=$(readlink /proc/$pid/cwd)
user=$(stat -c %u:%g /proc/$pid)
kill -9 $pid
gone 'lives target.pid'
sleep {values["after_ms"] / 1000:g}
cat > again <<'END'
{_AGAIN}END
setsid sh ./again "$at" "$PWD" $user </dev/null >/dev/null 2>&1 3>&- &
remember $! again.pid""",
        undoing=": > let-go",
        test="[ -s again.pid ] && [ ! -e let-go ] && lives again.pid",
    )
    return host.plan(target, values, (change,), Moves("step", ("state",), probe=host.process_probe()))
