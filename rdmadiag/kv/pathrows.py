"""What the dual path's scheduler decided and what came of it: the rows of kv_path and kv_job. Not thread-safe; its user holds a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rdmadiag.kv.health import DEMOTED, RETURNED
from rdmadiag.kv.record import quantile
from rdmadiag.kv.scheduler import SMALL_BYTES, Job, Path

SAMPLES = 10_000
"""Most values kept of a series; of a longer one the first."""


class _PathTold:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.rtts: list[float] = []
        self.failed_probes = self.bytes = self.jobs = self.failed = self.preempted = self.demotions = self.queue_max = 0
        self.busy = self.away = 0.0
        self.left: float | None = None


class _JobsTold:
    def __init__(self) -> None:
        self.count = self.bytes = 0
        self.waited: list[float] = []
        self.took: list[float] = []


class Told:
    """Counts by path, and by what a job was."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = {path.name: _PathTold(path) for path in paths}
        self._jobs: dict[tuple[str, int, str, str], _JobsTold] = {}

    def queued(self, path: str, waiting: int) -> None:
        """Note how many jobs wait on a path."""
        one = self._paths[path]
        one.queue_max = max(one.queue_max, waiting)

    def probed(self, path: str, seconds: float | None) -> None:
        """Note a round trip, or that there was none (None)."""
        one = self._paths[path]
        if seconds is None:
            one.failed_probes += 1
        elif len(one.rtts) < SAMPLES:
            one.rtts.append(seconds)

    def moved(self, path: str, nbytes: int, seconds: float) -> None:
        """Note a chunk."""
        one = self._paths[path]
        one.bytes += nbytes
        one.busy += seconds

    def changed(self, path: str, change: str, now: float) -> None:
        """Note that a path was demoted, or returned."""
        one = self._paths[path]
        if change == DEMOTED:
            one.demotions += 1
            one.left = now if one.left is None else one.left
        elif change == RETURNED and one.left is not None:
            one.away, one.left = one.away + now - one.left, None

    def preempted(self, path: str) -> None:
        """Note that a job gave way to one of a higher priority."""
        self._paths[path].preempted += 1

    def ended(self, path: str, job: Job, good: bool, waited: float, took: float) -> None:
        """Note the end of a job on a path: it was done, or goes on elsewhere."""
        one = self._paths[path]
        if not good:
            one.failed += 1
            return
        one.jobs += 1
        size = "small" if job.size_bytes <= SMALL_BYTES else "bulk"
        jobs = self._jobs.setdefault((job.kind, job.priority, size, path), _JobsTold())
        jobs.count += 1
        jobs.bytes += job.size_bytes
        if len(jobs.waited) < SAMPLES:
            jobs.waited.append(waited)
            jobs.took.append(took)

    def path_rows(self, state: Callable[[str], str], now: float) -> list[dict[str, Any]]:
        """Return the rows of kv_path; `state` gives the health of a path."""
        return [self._path_row(one, state(name), now) for name, one in self._paths.items()]

    @staticmethod
    def _path_row(one: _PathTold, state: str, now: float) -> dict[str, Any]:
        rtts = sorted(one.rtts)
        return {
            "path": one.path.name,
            "kind": one.path.kind,
            "state": state,
            "probes": len(rtts) + one.failed_probes,
            "probes_failed": one.failed_probes,
            "rtt_p50_seconds": round(quantile(rtts, 0.5), 9) if rtts else None,
            "rtt_p99_seconds": round(quantile(rtts, 0.99), 9) if rtts else None,
            "expected_bytes_per_second": one.path.bytes_per_second,
            "bytes_per_second": round(one.bytes / one.busy, 1) if one.busy else None,
            "bytes": one.bytes,
            "jobs": one.jobs,
            "jobs_failed": one.failed,
            "preempted": one.preempted,
            "demotions": one.demotions,
            "away_seconds": round(one.away + (now - one.left if one.left is not None else 0.0), 6),
            "queue_max": one.queue_max,
        }

    def job_rows(self) -> list[dict[str, Any]]:
        """Return the rows of kv_job."""
        rows = []
        for (kind, priority, size, path), jobs in sorted(self._jobs.items()):
            waited, took = sorted(jobs.waited), sorted(jobs.took)
            rows.append(
                {
                    "kind": kind,
                    "priority": priority,
                    "size": size,
                    "path": path,
                    "jobs": jobs.count,
                    "bytes": jobs.bytes,
                    "waited_p50_seconds": round(quantile(waited, 0.5), 6),
                    "waited_max_seconds": round(waited[-1], 6),
                    "took_p50_seconds": round(quantile(took, 0.5), 6),
                }
            )
        return rows
