"""What ends a command, and what does not: signals do, output that nobody reads does not."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any, TextIO


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end; everything is tidied up on its way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"Stopped by {signal.Signals(self.number).name}."


def exit_status(stopped: KeyboardInterrupt) -> int:
    """As a shell says it: 128 and the number of the signal."""
    return 128 + int(getattr(stopped, "number", signal.SIGINT))


def end_by_signals() -> None:
    """SIGTERM and SIGHUP end a command as Ctrl-C does; one that is ignored stays so (`nohup`)."""

    def stop(number: int, _frame: Any) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)  # a second one would cut the tidying short
        raise Stopped(number)

    names = ("SIGTERM", "SIGHUP")
    numbers = [
        number
        for number in (getattr(signal, name, None) for name in names)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, stop)


def forgive_output() -> None:
    """Make standard output and error take every text, and nobody's ear for it, without an error.

    Characters that the encoding lacks are written as escapes. What is written to a pipe that was
    closed, to a full disk or to a stream that was never open is lost, and the command goes on.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The next file that is opened would take this number, and the output meant for it.
            with suppress(OSError):
                os.open(os.devnull, os.O_RDWR)
    sys.stdout = _forgiving(sys.stdout, 1)
    sys.stderr = _forgiving(sys.stderr, 2)


def _forgiving(stream: TextIO | None, number: int) -> Any:
    if isinstance(stream, _Forgiving):
        return stream
    if stream is None:  # it was closed when Python started
        stream = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return _Forgiving(stream)


class _Forgiving:
    """A text stream whose writes never fail."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            self._drop()
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._drop()

    def _drop(self) -> None:
        """Let what is still in the stream, and what comes, go nowhere."""
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
