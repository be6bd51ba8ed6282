"""What the controls of the page do to a specification: each press becomes keys with new values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any

from subspacedp.io.periods import COARSER, is_day
from subspacedp.publication.advice import Change
from subspacedp.publication.faults import SpecificationError
from subspacedp.publication.reading import plain_scalar

Place = tuple[str, ...]
Keys = Mapping[str, Any]
Form = Mapping[str, Any]
STATES = ("left out", "published", "held")
# By the way a budget is said: the key it is written under, and the ends of its slider.
DIALS: dict[str, tuple[str, float, float]] = {
    "epsilon": ("epsilon", 0.01, 20.0),
    "odds": ("epsilon", 0.01, 14.0),
    "approximate": ("epsilon", 0.01, 20.0),
    "rho": ("rho", 1e-4, 50.0),
    "mu": ("mu", 0.01, 10.0),
}
DELTA = 1e-9
SUM_KEYS = {"lower": "The lower end", "upper": "The upper end", "unit": "The unit",
            "share": "The share", "missing": "The value for rows without one"}  # fmt: skip


# By what readers are told of a publication: where it stands.
FACTS: dict[str, Place] = {
    "title": ("title",),
    "contact": ("contact",),
    **{key: ("publication", key) for key in ("creator", "licence", "version", "date")},
}
AXIS_KEYS = {
    "title": "what readers see in place of the name",
    "column": "the column of the data, if it has another name",
    "missing": "the label of rows that have nothing here",
    "other": "the label of rows whose value has no place here",
}


class TableKeys:
    """The keys of one table, in a specification that may still be wrong."""

    def __init__(self, data: Keys, name: str = "") -> None:
        tables = data.get("tables")
        self.data = data
        self.place: Place = ()
        self.section: Keys = data
        if isinstance(tables, Mapping) and tables:
            name = name if name in tables else next(iter(tables))
            self.place, self.section = ("tables", name), _keys(tables[name])
        self.name = name if self.place else ""

    @property
    def axes(self) -> dict[str, Keys]:
        """The axes by name, those of this table alone."""
        axes = _keys(self.data.get("axes"))
        wanted = self.section.get("axes") if self.place else None
        names = [n for n in wanted if n in axes] if isinstance(wanted, list) else list(axes)
        return {str(name): _keys(axes[name]) for name in names}

    @property
    def chains(self) -> dict[str, tuple[str, ...]]:
        """By axis: its own name, those of its levels, finest first, and of its groupings."""
        return {
            name: (
                name,
                *(str(level) for key in ("levels", "groupings") for level in entry.get(key) or ()),
            )
            for name, entry in self.axes.items()
        }

    @property
    def hold(self) -> list[list[str]]:
        """The margins that are held."""
        return _margins(self.section.get("hold"))

    @property
    def sums(self) -> dict[str, Keys]:
        """The sums beside the counts."""
        return {str(name): _keys(one) for name, one in _keys(self.section.get("sums")).items()}

    @property
    def publish(self) -> Keys:
        """The section `publish`, that of the table before that of all."""
        return {**_keys(self.data.get("publish")), **_keys(self.section.get("publish"))}

    @property
    def entries(self) -> list[Any]:
        """The published margins as they were written."""
        listed = self.publish.get("margins")
        return list(listed) if isinstance(listed, list) else []

    @property
    def margins(self) -> list[list[str]]:
        """The published margins."""
        return _margins(list(map(_names, self.entries)))

    def targets(self) -> dict[frozenset[str], Any]:
        """By margin: the target that was written for it."""
        return {
            frozenset(map(str, _names(one) or ())): one.get("error")
            for one in self.entries
            if isinstance(one, Mapping) and one.get("error") is not None
        }

    @property
    def cells(self) -> Any:
        """Whether the cells are published, as it was written."""
        return self.publish.get("cells", True)

    @property
    def weighed(self) -> bool:
        """Whether weights say what the error of each table counts for."""
        return self.publish.get("weights") is not None

    def weight(self, names: Sequence[str] | None) -> Any:
        """What the error of a margin counts for; of the cells, if no names are given."""
        return self._weights.get(None if names is None else frozenset(names), 1)

    @cached_property
    def _weights(self) -> dict[frozenset[str] | None, Any]:
        listed = self.publish.get("weights")
        cells = [None] if self.cells is not False else []
        names = [*cells, *map(frozenset, self.margins)]
        return dict(zip(names, listed, strict=False)) if isinstance(listed, list) else {}

    @property
    def inequalities(self) -> Keys | None:
        """What is publicly known of the counts; None where nothing is said of it."""
        known = self.section.get("inequalities")
        return known if isinstance(known, Mapping) else None

    def state(self, names: Sequence[str]) -> str:
        """Whether a margin is held, published with noise, or left out."""
        return self._states.get(frozenset(names), STATES[0])

    @cached_property
    def _states(self) -> dict[frozenset[str], str]:
        out = dict.fromkeys(map(frozenset, self.margins), STATES[1])
        return {**out, **dict.fromkeys(map(frozenset, self.hold), STATES[2])}

    def setting(self, name: str, value: Any) -> Change:
        """A key of `publish` of this table."""
        return Change(key=(*self.place, "publish", name), value=value)

    def listing(self, entries: list[Any]) -> list[Change]:
        """Other published margins, each with its weight if there are weights."""
        if entries == self.entries:
            return []
        changes = [self.setting("margins", entries or None)]
        return changes + (self.weighing(entries, self.cells) if self.weighed else [])

    def weighing(
        self, entries: list[Any], cells: Any, new: Mapping[frozenset[str] | None, Any] | None = None
    ) -> list[Change]:
        """Weights of these margins, and of the cells where they are published."""
        known = {**self._weights, **(new or {})}
        names: list[frozenset[str] | None] = [None] if cells is not False else []
        names += [frozenset(map(str, _names(one) or ())) for one in entries]
        return [self.setting("weights", [known.get(one, 1) for one in names] if entries else None)]


def changes_of(data: Keys, form: Form) -> list[Change]:
    """The changes that a control asks for; unknown or ill-formed ones are refused."""
    control = CONTROLS.get(str(form.get("do")))
    if control is None:
        raise SpecificationError("The page asked for something that is not known; load it anew.")
    try:
        return control(data, form)
    except SpecificationError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError):
        raise SpecificationError(
            "This part of the specification is written in a form that the page cannot change; "
            "change it in the YAML."
        ) from None


def budget_of(data: Keys, dial: str | None = None) -> dict[str, Any]:
    """How the budget is said: the dial, its amount, δ, and whether it is the least."""
    privacy = _keys(data.get("privacy"))
    key = next((name for name in ("epsilon", "rho", "mu") if name in privacy), "epsilon")
    said = "approximate" if key == "epsilon" and "delta" in privacy else key
    if dial == "odds" and said == "epsilon":
        said = "odds"
    amount = privacy.get(key)
    least = amount == "least"
    number = amount if _is_number(amount) else 1.0
    return {"dial": said, "amount": number, "least": least, "delta": privacy.get("delta", DELTA)}


def _budget(data: Keys, form: Form) -> list[Change]:
    now = budget_of(data)
    dial = str(form.get("dial") or now["dial"])
    key, low, high = DIALS[dial]
    changes = [
        Change(key=("privacy", name), value=None)
        for name in ("epsilon", "rho", "mu")
        if name != key and name in _keys(data.get("privacy"))
    ]
    if form.get("least"):
        amount: Any = "least"
    elif form.get("amount") not in (None, ""):
        amount = _number(form["amount"], "The budget")
    else:  # another way to say about the same: Gaussian noise of ρ = ε²/2 has the variance of 1/ε²
        epsilon = now["amount"]
        if now["dial"] == "rho":
            epsilon = math.sqrt(2 * now["amount"])
        value = {"rho": epsilon**2 / 2}.get(key, epsilon)
        amount = float(f"{min(max(value, low), high):.3g}")
    changes.append(Change(key=("privacy", key), value=amount))
    delta = form.get("delta", now["delta"]) if dial == "approximate" else None
    if delta is not None or "delta" in _keys(data.get("privacy")):
        delta = None if delta is None else _number(delta, "δ")
        changes.append(Change(key=("privacy", "delta"), value=delta))
    return changes


def _margin(data: Keys, form: Form) -> list[Change]:
    """Turn a margin to the state that is asked for: left out, published or held."""
    table, names = TableKeys(data, form.get("table", "")), [str(n) for n in form["names"]]
    wanted, state = frozenset(names), str(form["state"])
    others = [one for one in table.entries if frozenset(map(str, _names(one) or ())) != wanted]
    listed = table.entries if len(others) < len(table.entries) else [*others, names]
    held = [one for one in table.hold if frozenset(one) != wanted]
    if state == STATES[0]:
        listed = others
    elif state == STATES[2]:
        held = [*held, names]
    changes = table.listing(listed)
    if held != table.hold:
        changes.append(Change(key=(*table.place, "hold"), value=held or None))
    return changes


def _all_pairs(data: Keys, form: Form) -> list[Change]:
    """Publish the margins of every two axes, or every single one."""
    table, size = TableKeys(data, form.get("table", "")), int(form["size"])
    known = {frozenset(one) for one in table.margins}
    fresh = [list(pair) for pair in combinations(table.axes, size) if frozenset(pair) not in known]
    return table.listing([*table.entries, *fresh])


def _target(data: Keys, form: Form) -> list[Change]:
    table, wanted = TableKeys(data, form.get("table", "")), frozenset(form["names"])
    text = str(form.get("value", "")).strip()
    entries = []
    for one in table.entries:
        names = _names(one) or []
        if frozenset(map(str, names)) != wanted:
            entries.append(one)
        elif text:
            entries.append({"margin": names, "error": _number(text, "A target")})
        else:
            entries.append(names)
    return [table.setting("margins", entries)]


def _cells(data: Keys, form: Form) -> list[Change]:
    table = TableKeys(data, form.get("table", ""))
    value = {"yes": None, "no": False}.get(str(form["value"]), form["value"])
    if value is None and table.place and _keys(data.get("publish")).get("cells") is False:
        value = True
    changes = [table.setting("cells", value)]
    return changes + (table.weighing(table.entries, value) if table.weighed else [])


def _weigh(data: Keys, form: Form) -> list[Change]:
    """Weights come, in the place of targets, or go."""
    table = TableKeys(data, form.get("table", ""))
    if not form["value"]:
        return [table.setting("weights", None)]
    entries = [_names(one) for one in table.entries]
    return [table.setting("margins", entries), *table.weighing(entries, table.cells)]


def _weight(data: Keys, form: Form) -> list[Change]:
    table, names = TableKeys(data, form.get("table", "")), form["names"]
    weights = {None if names is None else frozenset(names): _number(form["value"], "A weight")}
    return table.weighing(table.entries, table.cells, weights)


def _known(data: Keys, form: Form) -> list[Change]:
    """Whether intervals use what is publicly known: that no count is negative, and limits."""
    table = TableKeys(data, form.get("table", ""))
    return [Change(key=(*table.place, "inequalities"), value={} if form["value"] else None)]


def _add_known(data: Keys, form: Form) -> list[Change]:
    """A public limit of a table's figures, or a label whose counts are part of another's."""
    table, key = TableKeys(data, form.get("table", "")), str(form["key"])
    first, second = (str(form[name]).strip() for name in ("what", "most"))
    if not second or (key == "part_of" and not first):
        raise SpecificationError("Say both: of what, and what it is at most.")
    if key == "part_of":
        entry: Any = [_label(first), _label(second)]
    else:
        names = first.replace("×", " ").replace(",", " ").split()
        entry = {"margin": names, "limit": _label(second)}
    listed = [*((table.inequalities or {}).get(key) or ()), entry]
    return [Change(key=(*table.place, "inequalities", key), value=listed)]


def _remove_known(data: Keys, form: Form) -> list[Change]:
    table, key = TableKeys(data, form.get("table", "")), str(form["key"])
    listed = list((table.inequalities or {})[key])
    del listed[int(form["number"])]
    return [Change(key=(*table.place, "inequalities", key), value=listed or None)]


def _share(data: Keys, form: Form) -> list[Change]:
    table, text = TableKeys(data, form.get("table", "")), str(form["value"]).strip()
    value = _number(text, "A share of the budget") if text else None
    return [Change(key=(*table.place, "share"), value=value)]


def _also(data: Keys, form: Form) -> list[Change]:
    """A second table, its records, or a further format of the files: written too, or not."""
    table, key = TableKeys(data, form.get("table", "")), str(form["key"])
    if key in ("non_negative", "records"):
        return [table.setting(key, True if form["value"] else None)]
    others = [one for one in table.publish.get("formats") or () if one != key]
    return [table.setting("formats", [*others, key] if form["value"] else others or None)]


def _decimals(data: Keys, form: Form) -> list[Change]:
    table = TableKeys(data, form.get("table", ""))
    text = str(form["value"])
    return [table.setting("decimals", None if text == "real" else int(text))]


def _mechanism(data: Keys, form: Form) -> list[Change]:
    table, value = TableKeys(data, form.get("table", "")), str(form["value"])
    place: Place = (*table.place, "mechanism")
    return [Change(key=place, value=None if value == "auto" and not table.place else value)]


def _neighbours(data: Keys, form: Form) -> list[Change]:
    del data
    value = str(form["value"])
    return [Change(key=("privacy", "neighbours"), value=value)]


def _records(data: Keys, form: Form) -> list[Change]:
    del data
    number = _number(form["value"], "The number of records")
    return [Change(key=("data", "records"), value=int(number))]


def _text_at(*key: str) -> Callable[[Keys, Form], list[Change]]:
    """A control of one text; an empty one leaves the key out."""

    def control(data: Keys, form: Form) -> list[Change]:
        del data
        return [Change(key=key, value=str(form["value"]).strip() or None)]

    return control


def _source(data: Keys, form: Form) -> list[Change]:
    text = str(form["value"]).strip()
    counted = ("counts",) if "counts" in _keys(data.get("data")) else ()
    return [Change(key=("data", *counted, "source"), value=text or None)]


def _counted(data: Keys, form: Form) -> list[Change]:
    """Whether the data are records of people, or a table that was counted before."""
    now = _keys(data.get("data"))
    counts = _keys(now.get("counts"))
    source, records = counts.get("source", now.get("source")), now.get("records")
    entry: dict[str, Any] = {"source": source, "unit": now.get("unit", "row")}
    if form["value"] == "counts":
        entry = {"counts": {"source": source}}
    return [Change(key=("data",), value={**entry, **({"records": records} if records else {})})]


def _persons(data: Keys, form: Form) -> list[Change]:
    about, text = data.get("about"), str(form["value"]).strip()
    given: dict[str, Any] = {"text": about} if isinstance(about, str) else dict(_keys(about))
    given.pop("persons", None)
    if text:
        given["persons"] = int(_number(text, "The number of persons"))
    return [Change(key=("about",), value=given or None)]


def _account(data: Keys, form: Form) -> list[Change]:
    del data
    ledger, account = (str(form.get(name, "")).strip() for name in ("ledger", "account"))
    if not ledger and not account:
        return [Change(key=("budget",), value=None)]
    return [Change(key=("budget",), value={"ledger": ledger, "account": account})]


def _add_axis(data: Keys, form: Form) -> list[Change]:
    """An axis from its name and a line of labels, edges of numbers, or a path of a code list."""
    name, text = str(form.get("name", "")).strip(), str(form.get("labels", "")).strip()
    kind, by = str(form.get("kind", "labels")), str(form.get("by", ""))
    if not name or not (text or kind == "dates"):
        raise SpecificationError("An axis needs a name, and its labels or the path of a code list.")
    if name in _keys(data.get("axes")):
        raise SpecificationError(f"There is an axis `{name}` already; take another name.")
    if kind == "dates":
        ends = {end: form[end] for end in ("first", "last") if form.get(end)}
        years = ends if by in COARSER else {}
        entry = {"by": by, **{end: _period(str(value).strip()) for end, value in years.items()}}
    else:
        entry = {**_labels(text, kind), **(_levels(form) if kind == "list" else {})}
    changes = [Change(key=("axes", name), value=entry)]
    table = TableKeys(data, form.get("table", ""))
    if table.place:
        axes = [*(table.section.get("axes") or ()), name]
        changes.append(Change(key=(*table.place, "axes"), value=axes))
    return changes


def _set_labels(data: Keys, form: Form) -> list[Change]:
    name, kind = str(form["name"]), str(form["kind"])
    given = ("labels", "bins", "columns")
    entry = {k: v for k, v in _keys(data["axes"][name]).items() if k not in given}
    return [Change(key=("axes", name), value={**_labels(str(form["value"]), kind), **entry})]


def _axis_key(data: Keys, form: Form) -> list[Change]:
    """What readers see in place of a name, the column, and labels of what has no place."""
    name, key, text = str(form["name"]), str(form["key"]), str(form["value"]).strip()
    if key not in AXIS_KEYS or name not in data["axes"]:
        raise KeyError(key)
    return [Change(key=("axes", name, key), value=_label(text) if text else None)]


def _remove_axis(data: Keys, form: Form) -> list[Change]:
    """An axis goes with the margins that name it or its levels."""
    name = str(form["name"])
    changes = [Change(key=("axes", name), value=None)]
    changes += _unnamed(data, {*TableKeys(data).chains.get(name, ()), name})
    for each, table in _keys(data.get("tables")).items():
        axes = [axis for axis in table.get("axes") or () if axis != name]
        changes.append(Change(key=("tables", each, "axes"), value=axes))
    return changes


def _unnamed(data: Keys, gone: set[str]) -> list[Change]:
    """The margins of all tables without those that name what is gone."""
    changes, tables = [], data.get("tables")
    for each in tables if isinstance(tables, Mapping) else ("",):
        table = TableKeys(data, each)
        hold = [one for one in table.hold if not gone & set(one)]
        if hold != table.hold:
            changes.append(Change(key=(*table.place, "hold"), value=hold or None))
        entries = [one for one in table.entries if not gone & set(_names(one) or ())]
        changes += table.listing(entries)
    return changes


def _changed_axis(data: Keys, name: str, **keys: Any) -> list[Change]:
    """An axis with other keys, and without margins of levels that it no longer has."""
    changed = {**data, "axes": {**data["axes"], name: {**data["axes"][name], **keys}}}
    gone = set(TableKeys(data).chains[name]) - set(TableKeys(changed).chains[name])
    changes = [Change(key=("axes", name, key), value=value or None) for key, value in keys.items()]
    return [*changes, *_unnamed(data, gone)]


def _steps(data: Keys, form: Form) -> list[Change]:
    """A level or grouping comes or goes: a column of the code list, or groups with their labels."""
    name, step, role = (str(form[key]).strip() for key in ("name", "step", "role"))
    if not step:
        raise SpecificationError("A level or grouping needs a name.")
    entry, groups = data["axes"][name], str(form.get("groups", "")).strip()
    keys: dict[str, Any] = {}
    for key in ("levels", "groupings"):
        steps = entry.get(key)
        listed = isinstance(steps, list) or (steps is None and not groups)
        known = dict.fromkeys(steps) if listed and steps else dict(_keys(steps))
        known.pop(step, None)
        if key == role:
            known[step] = _groups(groups) if groups else None
        order = [one for one in form.get("order", ()) if one in known]
        keys[key] = [*order, *(one for one in known if one not in order)] if listed else known
    return _changed_axis(data, name, **keys)


def _groups(text: str) -> dict[str, list[Any]]:
    """Groups as they are typed: `north: a, b; south: c`."""
    out = {}
    for piece in text.split(";"):
        group, sign, labels = piece.partition(":")
        if piece.strip():
            if not sign or not group.strip():
                raise SpecificationError(
                    "Groups are written as `north: a, b; south: c`: each with its labels."
                )
            out[group.strip()] = next(iter(_labels(labels, "inline").values()))
    return out


def _dates(data: Keys, form: Form) -> list[Change]:
    """What dates are counted by, between which periods, and by which coarser ones too."""
    name, key = str(form["name"]), str(form["key"])
    entry, value = data["axes"][name], form["value"]
    if key == "by":
        return _changed_axis(data, name, **_periods(str(value), entry))
    if key in ("first", "last"):
        return _changed_axis(data, name, **{key: _period(str(value).strip())})
    coarser = [one for one in entry.get("levels") or () if one != key]
    ticked = [one for one in COARSER.get(entry["by"], ()) if one in coarser or one == key]
    return _changed_axis(data, name, levels=ticked if value else coarser)


def _periods(by: str, entry: Keys) -> dict[str, Any]:
    """The same range of years by other periods; weekdays and hours have none."""
    inside = {"year": ("", ""), "quarter": ("-Q1", "-Q4"), "month": ("-01", "-12")}.get(by)
    keys: dict[str, Any] = {"first": None, "last": None}
    for end, part in zip(keys, inside or (), strict=False):
        if entry.get(end):
            keys[end] = _period(str(entry[end])[:4] + part)
    levels = [one for one in entry.get("levels") or () if one in COARSER.get(by, ())]
    return {"by": by, **keys, "levels": levels}


def _period(text: str) -> Any:
    return int(text) if text.isdecimal() else text


def _add_sum(data: Keys, form: Form) -> list[Change]:
    """Sums of a value beside the counts."""
    table, name = TableKeys(data, form.get("table", "")), str(form["name"]).strip()
    if not name:
        raise SpecificationError("Sums need the name of the column with the value.")
    if name in table.sums:
        raise SpecificationError(f"There are sums of `{name}` already.")
    entry = {key: _number(form[key], words) for key, words in SUM_KEYS.items() if form.get(key)}
    return [Change(key=(*table.place, "sums", name), value=entry)]


def _set_sum(data: Keys, form: Form) -> list[Change]:
    table, key, text = TableKeys(data, form.get("table", "")), str(form["key"]), str(form["value"])
    place = (*table.place, "sums", str(form["name"]))
    value = _number(text, SUM_KEYS[key]) if text.strip() else None
    return [Change(key=(*place, key), value=value)]


def _remove_sum(data: Keys, form: Form) -> list[Change]:
    table, name = TableKeys(data, form.get("table", "")), str(form["name"])
    others = {one: entry for one, entry in table.sums.items() if one != name}
    return [Change(key=(*table.place, "sums"), value=others or None)]


def _levels(form: Form) -> dict[str, Any]:
    listed = {
        key: [name.strip() for name in str(form.get(key, "")).split(",") if name.strip()]
        for key in ("levels", "groupings")
    }
    return {key: names for key, names in listed.items() if names}


def _labels(text: str, kind: str) -> dict[str, Any]:
    """What a line means: the path of a code list, edges, or labels between commas."""
    if kind == "columns":
        pairs = [piece.partition(":") for piece in text.strip("{} ").split(",") if piece.strip()]
        named = {_label(one.strip()): (other or one).strip() for one, _, other in pairs}
        return {"columns": named}
    if kind == "list" or (kind == "labels" and PurePosixPath(text).suffix.lower() == ".csv"):
        return {"labels": text}
    pieces = [piece.strip() for piece in text.strip("[] ").split(",") if piece.strip()]
    if kind == "bins":
        days = [piece.strip("\"'") for piece in pieces]
        return {"bins": days if all(map(is_day, days)) else [_number(p, "An edge") for p in pieces]}
    values = [plain_scalar(piece)[0] for piece in pieces]
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
    # Text stays as it was typed: `007` and `no` are labels here, not numbers or truths.
    return {"labels": values if whole and [str(v) for v in values] == pieces else pieces}


def _label(text: str) -> Any:
    """A whole number where that is what was typed, else the text."""
    value, _ = plain_scalar(text)
    whole = isinstance(value, int) and not isinstance(value, bool) and str(value) == text
    return value if whole else text


def _keys(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _names(entry: Any) -> Any:
    return entry.get("margin") if isinstance(entry, Mapping) else entry


def _margins(listed: Any) -> list[list[str]]:
    listed = listed if isinstance(listed, list) else []
    return [[str(name) for name in one] for one in listed if isinstance(one, list)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _number(text: Any, what: str) -> int | float:
    try:
        value = float(str(text).replace("−", "-").replace(" ", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SpecificationError(f"{what} must be a number; got {str(text)[:40]!r}.")
    return int(value) if value == int(value) and abs(value) < 2**53 else value


CONTROLS: dict[str, Callable[[Keys, Form], list[Change]]] = {
    "budget": _budget,
    "margin": _margin,
    "pairs": _all_pairs,
    "target": _target,
    "cells": _cells,
    "decimals": _decimals,
    "mechanism": _mechanism,
    "neighbours": _neighbours,
    "records": _records,
    **{key: _text_at(*place) for key, place in FACTS.items()},
    "weigh": _weigh,
    "weight": _weight,
    "known": _known,
    "add-known": _add_known,
    "remove-known": _remove_known,
    "share": _share,
    "also": _also,
    "data-kind": _counted,
    "value": _text_at("data", "counts", "value"),
    "axis-key": _axis_key,
    "source": _source,
    "unit": _text_at("data", "unit"),
    "to": _text_at("publish", "to"),
    "persons": _persons,
    "account": _account,
    "add-axis": _add_axis,
    "set-labels": _set_labels,
    "remove-axis": _remove_axis,
    "steps": _steps,
    "dates": _dates,
    "add-sum": _add_sum,
    "set-sum": _set_sum,
    "remove-sum": _remove_sum,
}
