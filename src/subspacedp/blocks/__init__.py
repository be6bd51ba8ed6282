"""Tables of any size, block by block: sources, stores, passes, and who carries them out."""
