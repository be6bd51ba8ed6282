"""Releases that no one machine holds, or no one office may: agents, dealers, collectors."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subspacedp.distributed.agents import Privatised, privatize, privatize_share
    from subspacedp.distributed.collect import collect
    from subspacedp.distributed.commit import discard
    from subspacedp.distributed.dask_release import DaskRelease, release_dask
    from subspacedp.distributed.dealer import DealtShare, deal, read_share
    from subspacedp.distributed.partition import Partition
    from subspacedp.distributed.parts import Part
    from subspacedp.distributed.plan import AgentPlan, make_plan
    from subspacedp.distributed.progress import Progress
    from subspacedp.distributed.secret import Secret, make_secret, read_secret
    from subspacedp.distributed.streaming import stream_release
    from subspacedp.release.stored import StreamedRelease, load_stream

__all__ = [
    "AgentPlan",
    "DaskRelease",
    "DealtShare",
    "Part",
    "Partition",
    "Privatised",
    "Progress",
    "Secret",
    "StreamedRelease",
    "collect",
    "deal",
    "discard",
    "load_stream",
    "make_plan",
    "make_secret",
    "privatize",
    "privatize_share",
    "read_secret",
    "read_share",
    "release_dask",
    "stream_release",
]

_HOME = {
    "distributed.agents": ["Privatised", "privatize", "privatize_share"],
    "distributed.collect": ["collect"],
    "distributed.commit": ["discard"],
    "distributed.dask_release": ["DaskRelease", "release_dask"],
    "distributed.dealer": ["DealtShare", "deal", "read_share"],
    "distributed.partition": ["Partition"],
    "distributed.parts": ["Part"],
    "distributed.plan": ["AgentPlan", "make_plan"],
    "distributed.progress": ["Progress"],
    "distributed.streaming": ["stream_release"],
    "distributed.secret": ["Secret", "make_secret", "read_secret"],
    "release.stored": ["StreamedRelease", "load_stream"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'subspacedp.distributed' has no attribute {name!r}")
    value = getattr(import_module(f"subspacedp.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
