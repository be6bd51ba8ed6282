"""Peak resident memory of a call, from the kernel's own high-water mark."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

__all__ = ["peak_beyond", "peak_of_process"]


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in the process status")


def peak_beyond(call: Callable[[], object]) -> int:
    """How far the resident memory rises above where it was before the call, in bytes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # give back what earlier calls freed, or it hides the rise
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # reset the high-water mark
    before = _status("VmRSS")
    kept = call()
    rise = _status("VmHWM") - before
    del kept
    return rise


def peak_of_process() -> int:
    """The most memory the process had resident since `peak_beyond` began to look, in bytes."""
    return _status("VmHWM")
