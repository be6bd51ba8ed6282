"""`subspacedp key`: the key that signs publications."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from subspacedp.cli.parameters import Commands
from subspacedp.cli.terminal import say

key_app = typer.Typer(
    name="key", help="The key that signs publications.", cls=Commands, no_args_is_help=True
)


@key_app.callback()
def _key() -> None:
    """The key that signs publications."""


@key_app.command()
def new(
    path: Annotated[Path, typer.Argument(help="The private key to write; it must not exist.")],
) -> None:
    """Make a new key: a private file that signs, and a public one beside it for readers."""
    from subspacedp.release.signature import new_private_key

    public, fingerprint = new_private_key(path)
    say(f"Private key, for `publish: {{sign: {path}}}`: {path}")
    say(f"Public key, for your readers: {public}")
    say(f"Its fingerprint, to be published elsewhere too: {fingerprint}")
