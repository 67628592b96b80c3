"""Whose a process is: container, pod or job, as its control group's path tells (/proc/PID/cgroup)."""

from __future__ import annotations

from typing import Any

from rdmadiag.patterns import late

Values = dict[str, Any]

_CONTAINERS = (
    (late(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})"), "pod"),
    (late(r"job_(\d+)"), "slurm job"),
    (late(r"libpod-([0-9a-f]{12})"), "podman"),
    (late(r"docker[-/]([0-9a-f]{12})"), "docker"),
    (late(r"(?:crio-|cri-containerd[-:]|/)([0-9a-f]{12})[0-9a-f]{52}"), "container"),
)


def container_of(cgroup: str) -> str:
    """Return the pod, job or container that a process's /proc/PID/cgroup names, '' when none."""
    for pattern, word in _CONTAINERS:
        if match := pattern.search(cgroup):
            return f"{word} {match[1].replace('_', '-')}"
    return ""


_CONTAINER_ID = late(r"(?:docker|libpod|crio|cri-containerd)?[-:/]([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:$|[/\n])")


def owner_of(cgroup: str) -> Values:
    """Return cgroup path, pod, container_id and job of a process's /proc/PID/cgroup, those that it names."""
    paths = [line.split(":", 2)[2] for line in cgroup.splitlines() if line.count(":") >= 2]
    longest = max(paths, key=len, default="")
    pod, job, container = (pattern.search(cgroup) for pattern in (_CONTAINERS[0][0], _CONTAINERS[1][0], _CONTAINER_ID))
    found = {
        "cgroup": longest or None,
        "pod": pod[1].replace("_", "-") if pod else None,
        "container_id": container[1] if container else None,
        "job": job[1] if job else None,
    }
    return {name: value for name, value in found.items() if value is not None}
