"""Run certificates and plans of strangers through every reader, with limits on time and memory.

Started as a process of its own: `python -m tests.release.hostile FOLDER SEED NUMBER SHARE`. Without
a number of alterations, one in SHARE of the hand-made files is tried. Prints one line for
everything that is neither read nor refused in one sentence.
"""

import json
import random
import resource
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.release.mutations import mutations, put

MEMORY = 6 << 30  # bytes of address space; the libraries alone take two thirds of it
SECONDS, PATIENCE = 10, 20  # of the processor, and how often that on a busy machine
EVERY = 4  # of the files, one goes through the command too
DEEP = "[" * 100_000 + "]" * 100_000
BIG = "9" * 4000


class TooSlowError(BaseException):
    """No handler of ordinary errors takes this for one."""


def _alarm(*_: Any) -> None:
    raise TooSlowError


def _limit(seconds: int) -> None:
    """So much time of the processor, and a wait of many times that; none with zero."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(PATIENCE * seconds)


def texts(data: dict[str, Any]) -> list[str | bytes]:
    """Hand-made files in place of one that is right."""
    text = json.dumps(data)
    whole: list[str | bytes] = [
        "", " ", "null", "true", "0", '"x"', "[]", "{}", "[null]", "{", "}", '{"a"', "NaN", "nan",
        "Infinity", "-Infinity", "1e999", DEEP, '{"a":' * 5000 + "1" + "}" * 5000, BIG, f"[{BIG}]",
        "[" + "[]," * 50_000 + "[]]", "\x00", b"\xff\xfe", b"\x80abc", "\ufeff" + text, text[:-1],
        text[: len(text) // 2], text + text, text.replace("{", "[", 1), text.upper(),
        text.replace('"design"', '"Design"'), text.replace('"format"', '"format": 1, "format"'),
        text.replace('"mechanism"', '"mechanism": "projected", "mechanism"'),
        text.encode("utf-16"), text.replace("certificate 2", "certificate 3"),
    ]  # fmt: skip
    values: list[Any] = [
        None, 0, -1, 1.5, "", "x", [], {}, [None], {"a": None}, True, 10**400, "1e999999999",
        1e308, 5e-324, -0.0, 2**63, "\ud800", [[[[[[]]]]]], "9" * 100_000,
    ]  # fmt: skip
    for key in data:
        whole += [json.dumps({**data, key: value}) for value in values]
        whole.append(json.dumps({k: v for k, v in data.items() if k != key}))
        whole.append(json.dumps({**data, key: 0}).replace(f'"{key}": 0', f'"{key}": {DEEP[:1200]}'))
        whole.append(json.dumps({**data, key: 0}).replace(f'"{key}": 0', f'"{key}": {BIG}'))
        whole.append(json.dumps({**data, key: 0}).replace(f'"{key}": 0', f'"{key}": NaN'))
        whole.append(json.dumps({**data, key: 0}).replace(f'"{key}": 0', f'"{key}": 1e400'))
    return whole


def designs(data: dict[str, Any]) -> list[Any]:
    """Hand-made designs that ask for more than can be built."""
    axis = data["query"]["domain"][0] if "domain" in data["query"] else None
    many = {"start": 0, "stop": 10**9, "step": 1}
    linear = {
        "kind": "linear", "labels": ["a"], "grid": "1",
        "integers": {"shape": [1, 4], "rows": [0], "columns": [0], "values": [1]},
    }  # fmt: skip
    queries: list[Any] = [
        {**linear, "grid": grid}
        for grid in ("1e999999999", "1e-999999999", "1/" + "9" * 10**5, "0", "-1", "1/0", "1/3", 1)
    ]
    shapes = ([10**9, 10**9], [1, 10**9], [10**9, 4], [1, 2**62], [-1, 4], [1, 10**30], [1], None)
    queries += [{**linear, "integers": {**linear["integers"], "shape": s}} for s in shapes]
    queries += [{**linear, "integers": {**linear["integers"], "values": v}}
                for v in ([2**53], [10**30], [0], [1.5], [None], ["1"], [True], [])]  # fmt: skip
    queries += [{**linear, "integers": {**linear["integers"], "columns": [c]}}
                for c in (-1, 4, 10**12, None)]  # fmt: skip
    queries += [{"kind": "function", "labels": ["a"], "l1": a, "l2": b, "whole": w}
                for a, b, w in ((1e308, 1e308, False), (5e-324, 5e-324, False), (1, 1, 1),
                                (True, 1.0, True), (10**300, 1, True))]  # fmt: skip
    if axis is not None:
        queries += [{"kind": "cells", "domain": [{**axis, "levels": [], "labels": many}]},
                    {"kind": "cells", "domain": [
                        {**axis, "name": f"a{i}", "levels": [], "labels": {**many, "stop": 2}}
                        for i in range(70)]},
                    {"kind": "cells", "domain": [
                        {**axis, "name": f"a{i}", "levels": [], "labels": {**many, "stop": 10**6}}
                        for i in range(3)]}]  # fmt: skip
        for labels in (
            {**many, "stop": 10**30}, {**many, "step": 0}, {**many, "stop": -1}, {"start": 0},
            {**many, "start": -(10**18), "stop": 10**18}, "abc", [1, "a"], [None], [True], [[]],
        ):  # fmt: skip
            queries.append({"kind": "cells", "domain": [{**axis, "levels": [], "labels": labels}]})
        entries = {"kind": "entries", "domain": [axis], "lower": 0, "upper": 1}
        queries += [{**entries, "upper": upper} for upper in (10**30, 2**42, 0, -1, 1.0, True)]
        sums = {"kind": "clipped sums", "domain": [axis], "value": "v", "lower": 0, "upper": 1}
        queries += [{**sums, "unit": unit} for unit in (1e-300, 1e300, 0, -1, True, 1e-9)]
        deep = [{**axis, "name": f"a{i}", "levels": [], "labels": ["x", "y"]} for i in range(24)]
        names = [d["name"] for d in deep]
        families = [{"margin": names[:i] + names[i + 1 :]} for i in range(24)]
    out = [{**data, "query": query} for query in queries]
    if axis is not None:
        out.append({**data, "query": {"kind": "cells", "domain": deep}, "held": families})
        out.append({
            "mechanism": "marginals", "query": {
                "kind": "margins", "domain": deep, "margins": [f["margin"] for f in families],
                "weights": [1.0] * 24},
            "held": [], "budget": {"name": "pure", "epsilon": 1.0}, "decimals": None,
            "neighbours": {"name": "replace-one", "records": 1, "per_cell": None, "exactly": True},
            "marginals": {
                "workload": [f["margin"] for f in families], "weights": [1.0] * 24,
                "measured": "tables", "tables": [[]], "shares": [1 << 40], "objective": "sum",
                "goal": 1.0, "bound": 1.0},
        })  # fmt: skip
    budgets = (
        {"name": "pure", "epsilon": 1e-300}, {"name": "pure", "epsilon": 1e300},
        {"name": "pure", "epsilon": 5e-324},
        {"name": "approximate", "epsilon": 1e-300, "delta": 1e-300},
        {"name": "approximate", "epsilon": 1e300, "delta": 0.999999},
        {"name": "gaussian", "mu": 1e-308},
        {"name": "approximate", "epsilon": 1e-9, "delta": 5e-324},
        {"name": "gaussian", "mu": 1e308},
        {"name": "zero-concentrated", "rho": 1e308}, {"name": "zero-concentrated", "rho": 5e-324},
        {"name": "pure"}, {"name": "x"}, {"epsilon": 1.0}, {"name": []},
    )  # fmt: skip
    out += [{**data, "budget": budget} for budget in budgets]
    for records, per_cell in (
        (2**31 - 1, None),
        (2**31, None),
        (10**30, 1),
        (0, 0),
        (1, 2),
        (3, 2),
    ):
        relation = {**data["neighbours"], "records": records, "per_cell": per_cell}
        out.append({**data, "neighbours": relation})
    bases = [{"bits": b, "weights": [[1]]} for b in (10**9, 2**63, 10**30, -1, 0, 41, 1e9, "30")]
    out += [{**data, "mechanism": "extended", "basis": basis} for basis in bases]
    out += [{**data, "decimals": d} for d in (13, 10**9, -1, True, 1.0, "0")]
    held: list[Any] = [
        None, {}, [None], [{}], [{"zeros": [-1]}], [{"zeros": [10**12]}], [{"linear": {}}],
        [{"margin": ["nobody"]}], [{"margin": "abc"}], [{"margin": [1]}],
    ]  # fmt: skip
    out += [{**data, "held": part} for part in held]
    return out


def _readers(kind: str) -> list[Any]:
    from typer.testing import CliRunner

    from subspacedp.agents import AgentPlan
    from subspacedp.cli.app import app
    from subspacedp.release import Release

    def command(path: Path) -> None:
        result = CliRunner().invoke(app, ["verify", str(path.parent)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if "Traceback" in result.output:
            raise RuntimeError("a traceback is printed")
        if result.exit_code == 0 and (path.parent / "altered").exists():
            raise RuntimeError("an altered certificate verifies")

    if kind == "plan":
        return [AgentPlan.load]
    return [lambda path: Release.load(path.parent), command]


def main() -> None:
    """Every file through every reader."""
    from subspacedp.errors import SubspaceDPError
    from subspacedp.stated import digest_of

    home, (seed, number, share) = Path(sys.argv[1]), map(int, sys.argv[2:5])
    shuffle = random.Random(seed)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _alarm)
    signal.signal(signal.SIGPROF, _alarm)
    tried = 0
    for source in sorted(home.iterdir()):
        plan = source.suffix == ".json"
        original = (source if plan else source / "certificate.json").read_text("utf-8")
        data = json.loads(original)
        cases: list[str | bytes] = [] if number else texts(data)
        if not number:
            altered = [{**data, "design": design} for design in designs(data["design"])]
        else:
            every = mutations(data)
            chosen = shuffle.sample(every, min(number, len(every)))
            altered = [put(data, place, value) for place, value in chosen]
        for case in altered:
            if plan and isinstance(case, dict):
                content = {k: v for k, v in case.items() if k != "sha256"}
                case = {**content, "sha256": digest_of(content)}
            elif isinstance(case, dict) and "design_sha256" in case:
                case = {**case, "design_sha256": digest_of(case.get("design"))}
            cases.append(json.dumps(case))
        if number:  # bytes changed anywhere
            raw = original.encode()
            for _ in range(number // 4):
                at = shuffle.randrange(len(raw))
                cases.append(raw[:at] + bytes([shuffle.randrange(256)]) + raw[at + 1 :])
        else:
            cases = shuffle.sample(cases, len(cases) // share)
        readers = _readers("plan" if plan else "release")
        for read in readers:  # without a limit: modules are imported, kernels compiled
            read(source if plan else source / "certificate.json")
        place = home.parent / "tried"
        for case in cases:
            shutil.rmtree(place, ignore_errors=True)
            if plan:
                place.mkdir()
                path = place / "plan.json"
            else:
                shutil.copytree(source, place)
                path = place / "certificate.json"
            path.write_bytes(case if isinstance(case, bytes) else case.encode("utf-8", "replace"))
            tried += 1
            for read in readers if tried % EVERY == 0 else readers[:1]:
                _limit(SECONDS)
                try:
                    read(path)
                except SubspaceDPError as error:
                    if "\n" in str(error) or len(str(error)) > 1000:
                        print("LONG", source.name, str(case)[:200], str(error)[:200])
                except (Exception, TooSlowError) as error:
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    print(type(error).__name__, str(error)[:100], where.filename.split("/")[-1],
                          where.lineno, source.name, len(case), str(case)[-300:])  # fmt: skip
                finally:
                    _limit(0)
    print("tried", tried)


if __name__ == "__main__":
    main()
