"""The command line: thin; every verb is a file of its own."""

from subspacedp.cli.app import main

__all__ = ["main"]
