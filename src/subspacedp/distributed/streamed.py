"""A streamed release as `subspacedp.release` reads it; its verifier is that of every release."""

from __future__ import annotations

from subspacedp.release.folder_checks import verify_folder as verify_stream
from subspacedp.release.stored import StreamedRelease, load_stream

__all__ = ["StreamedRelease", "load_stream", "verify_stream"]
