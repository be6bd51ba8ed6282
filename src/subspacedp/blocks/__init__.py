"""Tables of any size, block by block: sources, stores, passes, and who carries them out."""

from subspacedp.blocks.passes import Survey, carry_out, survey
from subspacedp.blocks.progress import Progress
from subspacedp.blocks.sources import ArraySource, Source, open_source
from subspacedp.blocks.stores import STORES, Store, StoredValues, open_store

__all__ = [
    "STORES",
    "ArraySource",
    "Progress",
    "Source",
    "Store",
    "StoredValues",
    "Survey",
    "carry_out",
    "open_source",
    "open_store",
    "survey",
]
