"""About how much memory a publication takes, from its designs alone, and how much there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.base import Mechanism
from subspacedp.publication.releases import Asked, bounded

__all__ = ["available_memory", "check_publication_memory"]

# Measured: what is kept of every figure until the end, and what the widest step takes beside it.
KEPT, EVERYTHING, WORKING = 16, 8, 72
FIXED = 250_000_000  # the engine and the libraries, whatever the tables are


def check_publication_memory(asked: Sequence[Asked], designs: Mapping[str, Mechanism]) -> None:
    """Refuse a publication that would not fit into memory; ask before data are opened.

    The engine that counts is not in this: it has a limit of its own, and spills to disk.
    """
    known = [one for one in asked if one.name in designs]
    if not known:
        return
    sizes = {one.name: designs[one.name].query.size for one in known}
    kept = sum(
        sizes[one.name] * (KEPT + EVERYTHING * bounded(one.table.specification)) for one in known
    )
    needed = FIXED + kept + WORKING * max(sizes.values())
    free = available_memory()
    if free is None or needed <= free:
        return
    raise ReleaseError(
        f"{sum(sizes.values()):,} figures take about {needed / 1e9:,.1f} GB of memory, and "
        f"{free / 1e9:,.1f} GB are available; nothing was spent. Leave out an axis, take coarser "
        "labels, publish margins alone (`cells: false`), or use `subspacedp stream`, which "
        "needs memory for one block at a time.",
        needed=needed,
        available=free,
    )


def available_memory() -> int | None:
    """The bytes this process may still take: of the machine, its control group and its limits."""
    found = [*_machine(), *_control_group(), *_limit()]
    return max(0, min(found)) if found else None


def _machine() -> list[int]:
    return [1024 * n for n in _numbers(Path("/proc/meminfo"), "MemAvailable:")]


def _control_group(home: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """What a container is given, less what it uses; pages of files are given back when needed."""
    try:
        most = int((home / "memory.max").read_text("ascii"))
        used = int((home / "memory.current").read_text("ascii"))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return []
    return [most - used + sum(_numbers(home / "memory.stat", "inactive_file"))]


def _limit() -> list[int]:
    """What `ulimit -v` leaves, on systems that have it."""
    try:
        import resource
    except ImportError:
        return []
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = _numbers(Path("/proc/self/status"), "VmSize:")
    return [] if most == resource.RLIM_INFINITY or not used else [most - 1024 * used[0]]


def _numbers(path: Path, field: str) -> list[int]:
    try:
        lines = path.read_text("ascii", errors="replace").splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) for line in lines if line.split()[:1] == [field]][:1]
