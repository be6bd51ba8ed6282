"""What `import subspacedp`, a first design and `subspacedp --help` cost, beside `import numpy`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from compileall import compile_dir
from pathlib import Path

import subspacedp
from bench.timing import Ratio, best_times

DESIGN = """
import subspacedp as sdp

county = sdp.Axis("county", ["a", "b", "c", "d"], levels={"state": ["x", "x", "y", "y"]})
domain = sdp.Domain([county, sdp.Axis("sex", ["F", "M"])])
sdp.design(domain, sdp.hold("state"), sdp.BUDGET, decimals=0)
"""


def run() -> Iterator[Ratio]:
    """Whole processes, interpreter start included on both sides; compiled as an install is."""
    compile_dir(Path(subspacedp.__file__).parent, quiet=1)

    def python(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code

    command = str(Path(sys.executable).parent / "subspacedp")
    numpy, ours, pure, gaussian, help_ = best_times(
        lambda: python("import numpy"),
        lambda: python("import subspacedp"),
        lambda: python(DESIGN.replace("BUDGET", "PureDP(1.0)")),
        lambda: python(DESIGN.replace("BUDGET", "ZCDP(0.1)")),
        lambda: subprocess.run(  # noqa: S603 - our own command
            [command, "--help"], check=True, stdout=subprocess.DEVNULL
        ),
        rounds=15,
    )
    note = f"ours {ours * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms"
    yield Ratio("import_time_over_numpy", ours / numpy, 2.5, False, note)
    for name, time in (("pure", pure), ("zcdp", gaussian)):
        note = f"ours {time * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms; 8 cells, totals held"
        yield Ratio(f"import_and_{name}_design_time_over_numpy", time / numpy, 3.0, False, note)
    note = f"ours {help_ * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms"
    yield Ratio("help_time_over_numpy_import", help_ / numpy, 3.0, False, note)
