"""What `import subspacedp` and `subspacedp --help` cost, beside `import numpy`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.timing import Ratio, best_times


def run() -> Iterator[Ratio]:
    """Whole processes, interpreter start included on both sides."""

    def python(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code

    command = str(Path(sys.executable).parent / "subspacedp")
    numpy, ours, use, help_ = best_times(
        lambda: python("import numpy"),
        lambda: python("import subspacedp"),
        lambda: python("import subspacedp; subspacedp.design, subspacedp.Table"),
        lambda: subprocess.run(  # noqa: S603 - our own command
            [command, "--help"], check=True, stdout=subprocess.DEVNULL
        ),
        rounds=15,
    )
    note = f"ours {ours * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms"
    yield Ratio("import_time_over_numpy", ours / numpy, 2.5, False, note)
    note = f"{use * 1e3:.0f} ms with design and tables loaded"
    yield Ratio("import_and_use_time_over_numpy", use / numpy, 3.0, False, note)
    note = f"ours {help_ * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms"
    yield Ratio("help_time_over_numpy_import", help_ / numpy, 4.0, False, note)
