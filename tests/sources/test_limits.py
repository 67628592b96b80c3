"""Processes that use RDMA, and limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.errors import HostRefused
from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree
from rdmadiag.sources._owners import container_of, owner_of
from rdmadiag.sources.environment import allowed
from rdmadiag.sources.limits import TEXTS, parse_compose, parse_limits, parse_log, read

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max locked memory         65536                unlimited            bytes
Max open files            1024                 1048576              files
Max nice priority         0                    0
"""
JOB = """\
/proc/77/comm:python3
/proc/77/status:Uid:\t1000\t1000\t1000\t1000
/proc/77/cgroup:0::/kubepods.slice/kubepods-pod0a1b2c3d_0a1b_0a1b_0a1b_0a1b2c3d4e5f.slice/cri-containerd-1.scope
"""


class Tree(LiveTree):
    """A live tree whose kernel cannot list the users of devices."""

    def objects(self, command):
        raise HostRefused(command, "Invalid argument (EINVAL)")


def proc(path):
    return "".join(f"{path}:{line}\n" for line in LIMITS.splitlines())


def test_our_own_limits_are_read():
    assert rows(read(LiveTree(proc("/proc/self/limits"))), "process_limit") == [
        {"comm": "rdmadiag", "name": "cpu", "soft": -1, "hard": -1},
        {"comm": "rdmadiag", "name": "memlock", "soft": 65536, "hard": -1},
        {"comm": "rdmadiag", "name": "nofile", "soft": 1024, "hard": 1048576},
        {"comm": "rdmadiag", "name": "nice", "soft": 0, "hard": 0},
    ]


def test_processes_that_the_kernel_lists_are_read_with_their_environment():
    environ = b"PATH=/bin\0NCCL_IB_HCA=mlx5_0\0MC_TOKEN=x\0"
    host = LiveTree(
        JOB + proc("/proc/77/limits"),
        tables={
            "rdma res show ctx": [{"ifname": "mlx5_0", "ctxn": 1, "pid": 77, "comm": "python3"}, {"comm": "[ib_core]"}]
        },
        files={"/proc/77/environ": environ},
    )
    found = list(read(host))
    assert rows(found, "process") == [
        {
            "pid": 77,
            "comm": "python3",
            "uid": 1000,
            "container": "pod 0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",
            "pod": "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",
            "cgroup": "/kubepods.slice/kubepods-pod0a1b2c3d_0a1b_0a1b_0a1b_0a1b2c3d4e5f.slice/cri-containerd-1.scope",
        }
    ]
    assert {"pid": 77, "comm": "python3", "name": "memlock", "soft": 65536, "hard": -1} in rows(found, "process_limit")
    assert rows(found, "env") == [{"pid": 77, "name": "NCCL_IB_HCA", "value": "mlx5_0"}]
    assert gaps(found) == []


def test_an_environment_that_we_may_not_read_is_a_gap():
    host = LiveTree(
        JOB, refused=["/proc/77/environ"], tables={"rdma res show ctx": [{"pid": 77}]}, files={"/proc/77/limits": b""}
    )
    (gap,) = gaps(read(host))
    assert (gap.tables, gap.kind, gap.how) == (("env",), "not_permitted", "run as root")


def test_an_older_kernel_is_searched_for_open_devices():
    text = (
        JOB
        + proc("/proc/77/limits")
        + "/proc/77/fd/9 -> /dev/infiniband/uverbs0\n/dev/infiniband/uverbs0:\n/proc/78/fd/\n"
    )
    found = list(read(Tree(text, refused=["/proc/78/fd"], files={"/proc/77/environ": b""})))
    assert [row["pid"] for row in rows(found, "process")] == [77]
    assert [gap.kind for gap in gaps(found)] == ["not_permitted"]


def test_the_search_ends_in_time():
    host = Tree("".join(f"/proc/{pid}/fd/\n" for pid in range(100, 110)))
    ticks = iter(range(100))
    host.clock = lambda: float(next(ticks))
    (gap,) = [gap for gap in gaps(read(host)) if gap.subject == "/proc/PID/fd"]
    assert (gap.kind, gap.tables) == ("timeout", ("process_limit", "process", "env"))


def test_a_capture_holds_the_processes_that_were_read():
    host = CapturedHost(parse_tree(JOB + proc("/proc/77/limits"))[0])
    found = list(read(host))
    assert [row["pid"] for row in rows(found, "process")] == [77]
    assert ("process_limit",) in [gap.tables for gap in gaps(found)]


@pytest.mark.parametrize(
    "cgroup,name",
    [
        ("0::/", ""),
        ("0::/user.slice/user-1000.slice/session-3.scope", ""),
        ("0::/system.slice/docker-" + "0123456789abcdef" * 4 + ".scope", "docker 0123456789ab"),
        ("9:name=systemd:/docker/" + "0123456789abcdef" * 4, "docker 0123456789ab"),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "slurm job 4711"),
        ("0::/machine.slice/libpod-" + "0123456789abcdef" * 4 + ".scope", "podman 0123456789ab"),
    ],
)
def test_a_cgroup_names_container_pod_or_job(cgroup, name):
    assert container_of(cgroup) == name


def limits(text):
    return [(row["name"], row.get("soft"), row.get("hard")) for row in rows(parse_limits(lines(text)), "process_limit")]


def test_ulimit_a_is_parsed_in_bytes():
    text = """\
core file size          (blocks, -c) 0
max locked memory       (kbytes, -l) 64
open files                      (-n) 1024
pipe size            (512 bytes, -p) 8
stack size              (kbytes, -s) 8192
virtual memory          (kbytes, -v) unlimited
real-time non-blocking time  (microseconds, -R) unlimited
"""
    assert limits(text) == [
        ("core", 0, None),
        ("memlock", 65536, None),
        ("nofile", 1024, None),
        ("stack", 8388608, None),
        ("as", -1, None),
        ("rttime", -1, None),
    ]
    assert limits("-l: locked-in-memory size (kbytes)     64\n-n: file descriptors  1024") == [
        ("memlock", 65536, None),
        ("nofile", 1024, None),
    ]
    assert limits("locked memory(kbytes) 64\nnofiles              1024") == [
        ("memlock", 65536, None),
        ("nofile", 1024, None),
    ]


@pytest.mark.parametrize(
    "text,found",
    [
        ("$ ulimit -l\n8192", [("memlock", 8388608, None)]),
        ("$ ulimit -l\nunlimited", [("memlock", -1, None)]),
        ("$ ulimit -Hl\n64", [("memlock", None, 65536)]),
        ("$ ulimit -n\n1024", [("nofile", 1024, None)]),
        ("$ ulimit -l unlimited\n8192", []),
        ("8192", []),
        ("LimitMEMLOCK=infinity", [("memlock", -1, -1)]),
        ("LimitMEMLOCK=64M", [("memlock", 64 << 20, 64 << 20)]),
        ("LimitNOFILE=1024:524288", [("nofile", 1024, 524288)]),
        ("docker run --ulimit memlock=-1 --ulimit stack=67108864:67108864 x", [("memlock", -1, -1), ("stack", 67108864, 67108864)]),
        ("MEMLOCK    max locked-in-memory address space   8388608   unlimited bytes", [("memlock", 8388608, -1)]),
        ("NICE       max nice prio allowed to raise             0         0 ", [("nice", 0, 0)]),
        ("RESOURCE   DESCRIPTION                             SOFT      HARD UNITS", []),
    ],
)  # fmt: skip
def test_limits_are_known_wherever_they_are_shown(text, found):
    assert limits(text) == found


def test_limits_of_a_process_have_its_pid():
    text = "$ cat /proc/4711/limits\n" + LIMITS
    assert {row["pid"] for row in rows(parse_limits(lines(text)), "process_limit")} == {4711}


def test_a_compose_file_has_limits_on_one_line_or_below():
    text = "ulimits:\n  memlock: -1\n  stack:\n    soft: 67108864\n    hard: 67108864\nsoft: 1\n"
    assert [
        (row["name"], row.get("soft"), row.get("hard")) for row in rows(parse_compose(lines(text)), "process_limit")
    ] == [
        ("memlock", -1, -1),
        ("stack", 67108864, None),
        ("stack", None, 67108864),
    ]


def test_logs_tell_the_memory_lock_limit_once_a_host():
    line = (
        "[1700003473.473099] [node-a:{}:0]          ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate"
        " memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)\n"
    )
    assert rows(parse_log(lines(line.format(1) + line.format(2))), "process_limit") == [
        {"pid": 1, "name": "memlock", "soft": 65536}
    ]
    assert rows(parse_log(lines("libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.")), "process_limit") == [
        {"name": "memlock", "soft": 65536}
    ]


@given(st.text())
def test_no_text_raises(text):
    for kind in TEXTS:
        list(kind.parse(lines(text)))
        list(kind.parse(lines("$ ulimit -l\n" + text)))
        list(kind.parse(lines(LIMITS + text)))


def test_a_process_is_known_by_pod_container_and_job():
    unit = (
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0a1b_0a1b_0a1b_0a1b2c3d4e5f.slice/cri-containerd-"
        + "ab" * 32
        + ".scope"
    )
    found = owner_of(unit)
    assert (found["pod"], found["container_id"]) == ("0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f", "ab" * 6)
    job = owner_of("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0")
    assert job == {"cgroup": "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "job": "4711"}
    assert owner_of("0::/") == {"cgroup": "/"}


def test_the_capability_to_lock_memory_counts_in_the_first_user_namespace_alone():
    tree = "/proc/77/comm:x\n/proc/77/status:CapEff:\t0000000000004000\n/proc/77/uid_map:         0          0 4294967295\n"
    tables = {"rdma res show ctx": [{"ifname": "mlx5_0", "ctxn": 1, "pid": 77, "comm": "x"}]}

    def lock(text):
        return rows(read(LiveTree(text, tables=tables)), "process")[0].get("ipc_lock")

    assert lock(tree) == 1
    assert lock(tree.replace("0          0 4294967295", "0     100000 65536")) == 0
    assert lock(tree.replace("4000", "0000")) == 0
    assert lock(tree.partition("/proc/77/uid_map")[0]) is None


@pytest.mark.parametrize(
    "name", ["NCCL_IB_HCA", "UCX_TLS", "MC_GID_INDEX", "NIXL_LOG_LEVEL", "GLOO_SOCKET_IFNAME", "NVSHMEM_HCA_LIST"]
)
def test_variables_of_rdma_libraries_are_collected(name):
    assert allowed(name)


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "PATH",
        "MC_TOKEN",
        "LMCACHE_PASSWORD",
        "UCX_API_KEY",
        "NCCL_SECRET",
        "WANDB_API_KEY",
    ],
)
def test_secrets_and_all_else_never_are(name):
    assert not allowed(name)
