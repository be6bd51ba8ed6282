"""How large the blocks of a table are, and how many of them fit into memory at a time."""

from __future__ import annotations

from pathlib import Path

from subspacedp.errors import ReleaseError
from subspacedp.mechanisms.block_view import BlockView
from subspacedp.parallel import thread_count

SMALLEST, LARGEST = 1 << 18, 1 << 22  # cells of a block
LEAST_MEMORY = 1 << 28  # bytes that are taken where nothing else was said
MOST_AT_ONCE = 1 << 29  # bytes for all blocks together on a machine of many processors


def block_cells(cells: int) -> int:
    """The cells of a block: by the size of the table alone, so that no file depends on memory."""
    return min(LARGEST, max(SMALLEST, cells // 32))


def blocks_at_once(view: BlockView, largest: int, memory: int | None) -> int:
    """How many blocks may be worked on at a time: as many as there are threads, if they fit.

    Parameters
    ----------
    largest
        Cells of the largest block.
    memory
        Bytes; by default a quarter of what is free, and at least 256 MiB.
    """
    each, limit = view.bytes_per_cell * largest, memory_limit(memory)
    if memory is None and len(view.boxes(largest)) == 1:
        limit = max(limit, available_memory() or 0)  # there is nothing else to do with it
    if each > limit:
        raise ReleaseError(
            f"A block of {largest:,} cells takes about {each / 1e6:,.0f} MB of memory, and "
            f"{limit / 1e6:,.0f} MB may be taken"
            + ("." if len(view.boxes(largest)) > 1 else "; this design is made as one block."),
            needed=each,
            available=limit,
        )
    return max(1, min(limit // each, max(2, MOST_AT_ONCE // each), thread_count()))


def memory_limit(memory: int | None) -> int:
    """Bytes that may be taken: as given; else a quarter of what is free, at least 256 MiB."""
    if memory is not None:
        return memory
    return max(LEAST_MEMORY, (available_memory() or 0) // 4)


def available_memory() -> int | None:
    """The bytes this process may still take: of the machine, its control group and its limits."""
    known = [*_machine(), *_control_group(), *_limit()]
    return max(0, min(known)) if known else None


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
