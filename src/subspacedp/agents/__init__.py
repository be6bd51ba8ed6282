"""Releases of which no one holds the whole table: agents, dealers, collectors."""

from subspacedp.agents.agent import Privatised, privatize, privatize_share
from subspacedp.agents.collect import Part, collect
from subspacedp.agents.partition import Partition
from subspacedp.agents.plan import AgentPlan, make_plan
from subspacedp.agents.secret import DealtShare, Secret, deal, make_secret, read_secret, read_share

__all__ = [
    "AgentPlan",
    "DealtShare",
    "Part",
    "Partition",
    "Privatised",
    "Secret",
    "collect",
    "deal",
    "make_plan",
    "make_secret",
    "privatize",
    "privatize_share",
    "read_secret",
    "read_share",
]
