"""What a plan advises: sentences with figures, each with the line of the specification to change.

Every alternative is written into the specification, read and designed as `plan` would, so a figure
is what the plan says once the line is changed. The data are never opened; the ledger is, to read.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from subspacedp.errors import SubspaceDPError
from subspacedp.frozen import frozen
from subspacedp.ledger.entries import left_words, spend_of, spent_words
from subspacedp.mechanisms.estimates import Accuracy
from subspacedp.privacy import Budget, Neighbours
from subspacedp.privacy.budgets import factor_words
from subspacedp.privacy.composition import Composed, Spend, compose
from subspacedp.privacy.gaussian import about_mu
from subspacedp.publication.planning import FEW_CELLS, Plan, error_line, margins_of_kinds
from subspacedp.publication.reading import load_yaml
from subspacedp.publication.releases import ReleaseSpecification, public_domain, releases_of
from subspacedp.publication.specification import Specification, read_specification
from subspacedp.release import Design
from subspacedp.tables import Domain

if TYPE_CHECKING:
    from subspacedp.publication.paying import PayingAccount

SECONDS = 4.0  # of this process, after which no further alternative is designed
MANY_CELLS = 16  # cells in a sum from which on a margin of its own is looked at
WORTH_SAYING = 1.1  # times less squared error, or a margin of error narrower by its root
CELLS_AT_MOST = "at most +50 %"  # what cells may lose to margins that nobody asked for yet
MANY_DROWN = 0.5  # of the cells
MUCH_WORSE = 5.0  # times the standard error of noise on the cells alone
DELTA = 1e-9  # where the number of persons is not known
DELTAS = (1e-6, 1e-9)
DRAWS = 1 << 16  # for a share to a fifth of a per cent
MOST_MARGINS = 4096  # combinations of levels that are looked at

PLAIN = re.compile(r"[^\W\d][\w./-]*")  # text that needs no quotes unless YAML has a meaning for it

Names = tuple[str, ...]
Kinds = Sequence[tuple[int, float]]  # how many figures have which margin of error


@frozen(kw_only=True)
class Change:
    """One key of a specification and its new value; None to leave the key out."""

    key: tuple[str, ...]
    value: Any
    line: int | None = None  # where the key stands, or the section it would stand in

    @property
    def write(self) -> str:
        """The line as YAML."""
        return self.key[-1] if self.value is None else f"{self.key[-1]}: {yaml_of(self.value)}"

    def applied(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of a specification with this one changed."""
        first, *rest = self.key
        out = dict(document)
        if rest:
            inner = replace(self, key=tuple(rest))
            out[first] = inner.applied(out.get(first) or {})
        elif self.value is None:
            out.pop(first, None)
        else:
            out[first] = self.value
        return out

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "key": list(self.key),
            "value": self.value,
            "line": self.line,
            "write": None if self.value is None else self.write,
        }

    def __str__(self) -> str:
        under = f" under `{'.'.join(self.key[:-1])}`" if self.key[:-1] else ""
        line = f" (line {self.line})" if self.line else ""
        verb = "Leave out" if self.value is None else "Write"
        return f"{verb} `{self.write}`{under}{line}."


@frozen(kw_only=True)
class Advice:
    """One sentence with its figures, and the line to change where there is one."""

    topic: str
    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    change: Change | None = None
    release: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "topic": self.topic,
            **({"release": self.release} if self.release else {}),
            "sentence": self.sentence,
            "figures": dict(self.figures),
            **({"change": self.change.as_dict()} if self.change else {}),
        }

    def __str__(self) -> str:
        return f"{self.sentence} {self.change}" if self.change else self.sentence


def advise(planned: Plan) -> Iterator[Advice]:
    """All advice about a plan: what its budget means and costs, then what could be better."""
    adviser = _Adviser(planned)
    yield from adviser.meaning()
    yield from adviser.account()
    yield from adviser.left_over()
    yield from adviser.alternatives()


@frozen(eq=False)
class _Trial:
    """One release as one specification designs it; `names` None stands for its cells."""

    wanted: ReleaseSpecification
    domain: Domain
    design: Design

    def accuracy(self, names: Names | None) -> Accuracy:
        return self.design.accuracy() if names is None else self.design.margin_accuracy(*names)

    def margin_of_error(self, names: Names | None) -> float:
        """The largest of the figures, as the plan states it."""
        return error_line("", self.accuracy(names)).margin_of_error[1]

    def kinds(self, names: Names | None) -> Kinds:
        return list(margins_of_kinds(self.accuracy(names)))

    def squared_error(self, names: Names | None) -> float:
        kinds = self.accuracy(names).figures.kinds()
        return math.fsum(float((k.variance * k.number).sum()) for k in kinds)

    @property
    def published(self) -> list[Names | None]:
        """The families of figures that are published."""
        cells: list[Names | None] = [None] if self.wanted.cells else []
        return [*cells, *self.margins]

    @property
    def margins(self) -> list[Names]:
        """The published margins that are not held."""
        held = {frozenset(names) for names in self.wanted.table.hold}
        return [names for names in self.wanted.margins if frozenset(names) not in held]

    def ratios(self, other: _Trial) -> Iterator[float]:
        """How many times less squared error the other has, for each table that is not exact."""
        for names in self.published:
            before, after = self.squared_error(names), other.squared_error(names)
            if min(before, after) > 0:
                yield before / after

    def shape(self, names: Names | None) -> tuple[int, ...]:
        """How many labels the axes of a family have."""
        return self.domain.shape if names is None else self.domain.margin(*names).shape

    def summed(self, names: Names) -> int:
        """How many cells one figure of a margin adds up."""
        return self.domain.size // math.prod(self.shape(names))


class _Adviser:
    """Designs alternatives to a plan for as long as there is time."""

    def __init__(self, planned: Plan) -> None:
        self.specification: Specification = planned.specification
        self.document = self.specification.document
        self.wanted = releases_of(self.specification)
        self.designs = {release.name: release.design for release in planned.releases}
        self.lines = {release.name: release.lines for release in planned.releases}
        self.budget = self._budget()
        self.seconds = planned.seconds
        self.start = time.process_time()
        self.unseen = 0

    def _budget(self) -> Budget:
        """The budget of the whole; of the least that meets targets, what all releases take."""
        privacy = self.document.privacy
        if privacy.least is None:
            return privacy.budget
        spent = privacy.budget.spent(compose(self.spends))
        return privacy.budget if spent is None else privacy.budget.with_amount(spent)

    @cached_property
    def now(self) -> dict[str, _Trial]:
        out = {}
        for wanted in self.wanted:
            domain = public_domain(wanted.table)
            if domain is not None and wanted.name in self.designs:
                out[wanted.name] = _Trial(wanted, domain, self.designs[wanted.name])
        return out

    @property
    def spends(self) -> list[Spend]:
        """What every release spends, also those whose labels are still to be read."""
        return [
            spend_of(self.designs[one.name].mechanism)
            if one.name in self.designs
            else Spend(
                budget=one.budget,
                neighbours=self.specification.neighbours,
                capped=self.specification.data.bounded,
            )
            for one in self.wanted
        ]

    # ------------------------------------------------------------------------------ the budget

    def meaning(self) -> Iterator[Advice]:
        """What the budget means: as (ε, δ), and in odds."""
        total = compose(self.spends)
        figures: dict[str, Any] = {}
        if self.budget.symbol != "ε":
            figures = {f"epsilon_at_delta_{delta:g}": total.epsilon(delta) for delta in DELTAS}
            pairs = " or ".join(
                f"ε = {_up(total.epsilon(delta))} at δ = {_delta_words(delta)}" for delta in DELTAS
            )
            yield Advice(
                topic="equivalents",
                sentence=f"{self.budget} is {pairs}, by the exact law of the noise.",
                figures=figures,
            )
        relation, several = self.specification.neighbours, self.specification.neighbours.records > 1
        between = "has one record or another"
        if relation.persons == 1:
            between = "is in the data or not"
        elif several:
            between = "has these records or others"
        guess, odds = best_guess(total), ""
        figures = {"guess": guess}
        if self.budget.symbol == "ε":
            figures["odds"] = math.exp(min(self.budget.amount, 700.0))
            odds = f" comes to odds of at most {factor_words(self.budget.amount)} : 1"
            if self.budget.beside:
                odds += f" (but for a probability of{self.budget.beside.removeprefix(' at')})"
            odds += " and"
        held = any(one.held.margins for one in self.wanted)
        yield Advice(
            topic="odds",
            sentence=(
                "In odds: whoever knows everybody else's records, and finds it even whether a "
                f"person {between},{odds} guesses right in at most {_up(100 * guess)} of 100 cases "
                "after seeing all that is published; a coin does in 50."
                + (" What is held exact may tell more." if held else "")
            ),
            figures=figures,
        )

    def _paying(self) -> PayingAccount | None:
        """The account that pays, if there is one."""
        if self.document.budget is None:
            return None
        from subspacedp.publication.paying import paying_account

        return paying_account(self.specification, None)

    def account(self) -> Iterator[Advice]:
        """What the account has, what this would cost, and why a spend may count twice."""
        if self.document.budget is None:
            return
        try:
            paying = self._paying()
            if paying is None:
                return
            with paying.ledger as ledger:
                account = ledger.account(paying.name)
                before = ledger.totals(paying.name)
                ledger.check(paying.name, self.spends)
                after = ledger.totals(paying.name, self.spends)
        except SubspaceDPError as error:
            sentence = f"The account `{self.document.budget.account}` would not pay: {error}"
            yield Advice(topic="account", sentence=sentence, figures={"refused": True})
            return
        limit = account.limit
        sentence = (
            f"The account `{account.name}` has {left_words(before, limit)} left of {limit}; this "
            f"publication takes what is spent from {spent_words(before, limit)} to "
            f"{spent_words(after, limit)}, and leaves {left_words(after, limit)}."
        )
        figures = {
            "spent": limit.spent(before),
            "spent_after": limit.spent(after),
            "left": limit.left(before),
            "left_after": limit.left(after),
        }
        change = None
        if any(spend.steps_to(account.neighbours) > 1 for spend in self.spends):
            figures["steps"] = 2
            sentence += (
                f" The noise counts as two steps there ({_two_steps(self.budget)}), for the "
                f"account is for {account.neighbours.name} and the specification for "
                f"{self.specification.neighbours.name}: replacing a person is removing one and "
                "adding another."
            )
            change, gain = self._counted_once(account.neighbours, after)
            if change is not None:
                figures["squared_error_ratio"] = gain
                sentence += (
                    f" Asked for {account.neighbours.name} it costs no more and has "
                    f"{_times(gain)}, but does not hide whether a person is in the data at all."
                )
        yield Advice(topic="account", sentence=sentence, figures=figures, change=change)

    def left_over(self) -> Iterator[Advice]:
        """The table without a target that suffers most where others have one."""
        for one in self.now.values():
            aimed = [set(e.margin) for e in one.wanted.table.publish.entries if e.has_target]
            lines = {line.what: line for line in self.lines[one.wanted.name]}
            worst, names, times = None, None, MUCH_WORSE
            for family in one.published if aimed else ():
                what = "every cell" if family is None else one.domain.margin(*family).title
                line = lines[what]
                if set(family or one.wanted.table.axes) in aimed or not line.cells_alone:
                    continue
                if line.stderr[1] > times * line.cells_alone[1] > 0:
                    worst, names, times = line, family, line.stderr[1] / line.cells_alone[1]
            if worst is None:
                continue
            who = "The cells have" if names is None else f"The margin by {_words(names)} has"
            yield Advice(
                topic="targets",
                release=one.wanted.name,
                sentence=(
                    f"{_of(one)}{who} no target, and so what targets leave: ± "
                    f"{_figure(worst.margin_of_error[1])}, {times:,.3g} times the error of noise "
                    "on the cells alone. Set a target there too, or leave that table out."
                ),
                figures={"margin_of_error": worst.margin_of_error[1], "times": times},
            )

    def _counted_once(self, relation: Neighbours, after: Composed) -> tuple[Change | None, float]:
        """A budget for the account's own relation that costs no more, where it has less error."""
        privacy = self._given("privacy")
        counted = {k: v for k, v in self.budget.for_group(2).as_dict().items() if k != "name"}
        change = self._change(("privacy",), {**privacy, **counted, "neighbours": relation.name})
        trial = self._try(change)
        paying = trial and self._paying()
        if not trial or not paying:
            return None, 1.0
        with paying.ledger as ledger:
            limit, spends = ledger.account(paying.name).limit, _spends(trial)
            try:
                then = limit.spent(ledger.totals(paying.name, spends))
            except SubspaceDPError:
                return None, 1.0
        now, gain = limit.spent(after), self._overall(trial)
        same = now is not None and then is not None and then <= now * (1 + 1e-9)
        return (change if same and gain >= WORTH_SAYING else None), gain

    # ----------------------------------------------------------------------------- alternatives

    def alternatives(self) -> Iterator[Advice]:
        """What another line would gain, as long as there is time."""
        if any(one.domain.size > FEW_CELLS for one in self.now.values()) or self.seconds > SECONDS:
            if self.now:
                yield Advice(
                    topic="time",
                    sentence="No alternatives were designed, as one takes long at this size.",
                )
            return
        for one in self.now.values():
            if one.wanted.counts:
                yield from self._free_total(one)
                yield from self._sums_of_cells(one)
        yield from self._other_noise()
        for one in self.now.values():
            if one.wanted.counts:
                yield from self._drowned(one)
        if self.unseen:
            yield Advice(
                topic="time",
                sentence=f"{self.unseen} further alternatives were not designed: no time.",
            )

    def _free_total(self, one: _Trial) -> Iterator[Advice]:
        """A grand total that no neighbouring change alters, and that is not held."""
        if not self.specification.neighbours.keeps_total or one.wanted.held.margins:
            return
        if one.squared_error(()) == 0:
            return
        change = self._change((*one.wanted.table.place, "hold"), [[]])
        trial = self._try(change)
        other = trial and trial.get(one.wanted.name)
        if not other or other.design.guarantee.kind != "plain":
            return
        before, gain = one.margin_of_error(()), _mean(one.ratios(other))
        also = f", and what is published has {_times(gain)}" if gain >= WORTH_SAYING else ""
        yield Advice(
            topic="grand total",
            release=one.wanted.name,
            sentence=(
                f"{_of(one)}Under replace-one the grand total cannot change, so holding it costs "
                f"no privacy: it would be exact instead of ± {_figure(before)}{also}."
            ),
            figures={"margin_of_error": before, "then": 0.0, "squared_error_ratio": gain},
            change=change,
        )

    def _sums_of_cells(self, one: _Trial) -> Iterator[Advice]:
        """Margins that are sums of many noisy cells."""
        table = one.wanted.table
        if not one.wanted.cells:
            return
        loose = [n for n in one.margins if one.margin_of_error(n) > 0]
        by_cells = not one.design.mechanism.for_workloads
        if not loose:
            names = [n for n in _one_way(one.domain) if one.summed(n) >= MANY_CELLS]
            loose = [n for n in names if one.margin_of_error(n) > 0]
            if loose and by_cells:
                value = {
                    **self._given(*table.place, "publish"),
                    "cells": CELLS_AT_MOST,
                    "margins": [list(names) for names in (*table.margins, *loose)],
                }
                change = self._change((*table.place, "publish"), value)
                words = "Readers who add up cells get the margin {who} with ± {before}, a sum of "
                words += "{cells:,} noisy cells; with noise for it too it has ± {after}"
                yield from self._compared(one, change, loose, words)
            return
        if by_cells and table.mechanism != "auto":
            place = table.place_of("mechanism")
            change = self._change(place, "auto" if table.place else None)
            words = "The margin {who} is a sum of {cells:,} noisy cells, ± {before}; with noise "
            words += "designed for the margins too it has ± {after}"
            yield from self._compared(one, change, loose, words)
        if table.publish.weights is None and not one.wanted.non_negative:
            change = self._change((*table.place, "publish", "cells"), False)
            words = "If nobody needs the cells, the margin {who} can have ± {after} instead of "
            words += "± {before}, as no noise is spent on them"
            yield from self._compared(one, change, loose, words)

    def _compared(
        self, one: _Trial, change: Change, margins: Sequence[Names], words: str
    ) -> Iterator[Advice]:
        """The margin that gains most, and what becomes of the cells."""
        trial = self._try(change)
        other = trial and trial.get(one.wanted.name)
        if not other:
            return
        pairs = {n: (one.margin_of_error(n), other.margin_of_error(n)) for n in margins}
        names = max(pairs, key=lambda n: pairs[n][0] / max(pairs[n][1], 1e-300))
        before, after = pairs[names]
        if before < math.sqrt(WORTH_SAYING) * after:
            return
        figures: dict[str, Any] = {
            "margin": list(names),
            "margin_of_error": before,
            "then": after,
            "cells_summed": one.summed(names),
        }
        ending = ""
        if other.wanted.cells:
            cells = (one.margin_of_error(None), other.margin_of_error(None))
            figures |= {"cells": cells[0], "cells_then": cells[1]}
            ending = f"; the cells ± {_figure(cells[1])} instead of ± {_figure(cells[0])}"
        text = words.format(
            who="of the grand total" if not names else f"by {' × '.join(names)}",
            cells=one.summed(names),
            before=_figure(before),
            after=_figure(after),
        )
        yield Advice(
            topic="margins",
            release=one.wanted.name,
            sentence=f"{_of(one)}{text}{ending}.",
            figures=figures,
            change=change,
        )

    def _other_noise(self) -> Iterator[Advice]:
        """Gaussian noise for a pure budget, or Laplace noise for an (ε, δ): whichever is less."""
        privacy = self._given("privacy")
        if self.document.privacy.least is not None:
            return  # another kind of budget has another least
        if self.budget.pure:
            value = {"epsilon": privacy["epsilon"], "delta": self._delta()}
            value |= {k: v for k, v in privacy.items() if k not in value}
            promise = (
                "promises a little less: the factor e^ε may be exceeded with a probability of δ"
            )
            kind = "A Gaussian budget with the same ε"
            mu = about_mu(value["epsilon"], value["delta"])
            if self._gaussian_gain(mu * (1 + 1e-6)) < WORTH_SAYING:
                return
        elif "delta" in privacy:
            value = {k: v for k, v in privacy.items() if k != "delta"}
            kind, promise = "A pure budget with the same ε", "promises more, as δ is 0"
        else:
            return
        change = self._change(("privacy",), value)
        trial = self._try(change)
        if trial is None or not self._can_pay(trial):
            return
        gain = self._overall(trial)
        if gain < WORTH_SAYING:
            return
        name, one = next(iter(self.now.items()))
        names = one.published[0]
        before, after = one.margin_of_error(names), trial[name].margin_of_error(names)
        tables = sum(len(one.published) for one in self.now.values())
        over = f" in geometric mean over the {tables} published tables" if tables > 1 else ""
        yield Advice(
            topic="noise",
            sentence=(
                f"{kind} has {_times(gain)}{over} ({_of(one)}"
                f"{_words(names)} ± {_figure(after)} instead of ± {_figure(before)}); it {promise}."
            ),
            figures={"squared_error_ratio": gain, "margin_of_error": before, "then": after},
            change=change,
        )

    def _gaussian_gain(self, mu: float) -> float:
        """What `_overall` is at most for any unbiased noise of that μ; infinite where not known.

        A count that changes by one between neighbours has a variance of at least 1/(e^μ² − 1), by
        the bound of Hammersley, Chapman and Robbins with the χ² of two normal laws μ apart. They
        share what is held where a record is replaced by one that differs in an axis not held.
        """
        ratios = []
        for one in self.now.values():
            held = [one.shape(names) for names in one.wanted.table.hold]
            replaced = one.wanted.counts and self.specification.neighbours.persons == 2
            for names in one.published:
                error, shape = one.squared_error(names), one.shape(names)
                loose = (n > 1 and all(h[i] == 1 for h in held) for i, n in enumerate(shape))
                if error > 0:
                    least = math.prod(shape) / math.expm1(mu**2) if replaced and any(loose) else 0
                    ratios.append(error / least if least else math.inf)
        return _mean(ratios)

    def _delta(self) -> float:
        """Far below one in the number of persons, where that is known."""
        persons = self.document.persons
        return DELTA if persons is None else min(1e-6, 10.0 ** math.floor(-2 - math.log10(persons)))

    def _can_pay(self, trial: Mapping[str, _Trial]) -> bool:
        """Whether the account, if there is one, would pay for it."""
        try:
            paying = self._paying()
            if paying is not None:
                with paying.ledger as ledger:
                    ledger.check(paying.name, _spends(trial))
        except SubspaceDPError:
            return False
        return True

    def _drowned(self, one: _Trial) -> Iterator[Advice]:
        """The share of figures that cannot be told from zero, from public numbers alone."""
        persons = self.document.persons
        if persons is None:
            return
        most = persons * self.specification.neighbours.records
        names = one.published[0]
        kinds, shape, margin = one.kinds(names), one.shape(names), one.margin_of_error(names)
        share, sure = drowned(kinds, shape, most), surely_drowned(kinds, most)
        number = math.prod(shape)
        what = "cells" if names is None else f"figures of {_words(names)}"
        sentence = (
            f"{_of(one)}Of the {number:,} {what}, {_percent(share)} or more are expected to drown "
            f"in noise: counts of at most their margin of error, ± {_figure(margin)}. So it is "
            f"with {most:,} {'records' if most > persons else 'persons'} if the axes are "
            "independent and all shares of their labels equally likely; real tables mostly have "
            "more."
        )
        if sure > 0:
            sentence += f" At least {_percent(sure)} do, whatever the data are."
        figures: dict[str, Any] = {"share": share, "at_least": sure, "margin_of_error": margin}
        change = None
        if share > MANY_DROWN and names is None:
            change, coarser, then = self._coarser(one, most, margin)
            if change is not None:
                figures |= {"margin": list(coarser), "then": then}
                sentence += (
                    f" Of {_words(coarser)} in place of the cells it would be {_percent(then)}."
                )
        yield Advice(
            topic="drowned",
            release=one.wanted.name,
            sentence=sentence,
            figures=figures,
            change=change,
        )

    def _coarser(self, one: _Trial, most: int, margin: float) -> tuple[Change | None, Names, float]:
        """The finest coarser table of which less than half is expected to drown."""
        nothing: tuple[None, Names, float] = (None, (), 1.0)
        table = one.wanted.table
        axes = [(None, *(level.name for level in axis.named)) for axis in one.domain.axes]
        if math.prod(map(len, axes)) > MOST_MARGINS or table.publish.weights is not None:
            return nothing
        sizes = {}
        for chosen in product(*axes):
            names = tuple(name for name in chosen if name is not None)
            sizes[names] = math.prod(one.shape(names))
        finest = sorted(
            (n for n in sizes if 1 < sizes[n] < one.domain.size), key=lambda n: -sizes[n]
        )
        # Alone, a margin has about the noise of a cell; so much is known before it is designed.
        noise = [(1, margin)]
        coarse = [n for n in finest if drowned(noise, one.shape(n), most) < MANY_DROWN][:1]
        if not coarse:
            return nothing
        names = coarse[0]
        others = [list(n) for n in table.margins if set(n) != set(names)]
        given = self._given(*table.place, "publish")
        value = {**given, "cells": False, "margins": [list(names), *others]}
        for key in ("values", "non_negative", "records"):
            value.pop(key, None)
        change = self._change((*table.place, "publish"), value)
        trial = self._try(change)
        other = trial and trial.get(one.wanted.name)
        if not other:
            return nothing
        share = drowned(other.kinds(names), other.shape(names), most)
        return (change, names, share) if share < MANY_DROWN else nothing

    # ------------------------------------------------------------------------------------ trials

    def _given(self, *path: str | int) -> dict[str, Any]:
        """A section of the specification as it was written."""
        data: Any = self.specification.as_dict()
        for key in path:
            data = data.get(key) or {}
        return dict(data)

    def _change(self, key: tuple[Any, ...], value: Any) -> Change:
        names, lines = tuple(map(str, key)), self.specification.loaded.lines
        known = (names[:end] for end in range(len(names), 0, -1))
        return Change(
            key=names, value=value, line=next((lines[k] for k in known if k in lines), None)
        )

    def _try(self, change: Change) -> dict[str, _Trial] | None:
        """All releases of the specification with a line changed; None if refused or out of time."""
        if time.process_time() - self.start > SECONDS:
            self.unseen += 1
            return None
        try:
            changed = read_specification(
                change.applied(self.specification.as_dict()), folder=self.specification.folder
            )
            out = {}
            for wanted in releases_of(changed):
                if wanted.name in self.now:
                    domain = self.now[wanted.name].domain
                    wanted.check_files(domain)
                    out[wanted.name] = _Trial(wanted, domain, wanted.design(domain))
        except SubspaceDPError:
            return None
        return out if set(out) == set(self.now) else None

    def _overall(self, trial: Mapping[str, _Trial]) -> float:
        """How many times less squared error, in geometric mean over all published tables."""
        return _mean(ratio for name, one in self.now.items() for ratio in one.ratios(trial[name]))


def best_guess(total: Composed) -> float:
    """The largest probability of a right guess between two equally likely neighbours.

    (1 + TV)/2 with the total variation distance of the dominating pair: Φ(μ/2) for Gaussian
    noise, e^ε/(1 + e^ε) for pure budgets, (e^ε + δ)/(1 + e^ε) for every other (ε, δ).
    """
    if total.mu is not None:
        return 0.5 * math.erfc(-total.mu / math.sqrt(8))
    epsilon, delta = (total.pure, 0.0) if total.pure is not None else (total.epsilon(DELTA), DELTA)
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


def drowned(kinds: Kinds, shape: Sequence[int], records: int) -> float:
    """The share of figures that are expected to be at most their margin of error.

    The axes are held for independent, and all shares of an axis' labels for equally likely: that
    of one of k labels is then Beta(1, k − 1), and a figure is Poisson around the product.

    Guarantees
    ----------
    1. Nothing but the public law of the noise, the shape and the number of records enters.
    """
    margins = [margin if margin > 0 else -1.0 for _, margin in kinds]  # 0 is read off a 0
    generator = np.random.default_rng(0)  # public, and the same in every plan
    mean = np.full(DRAWS, float(records))
    for labels in shape:
        if labels > 1:
            mean *= 1 - (1 - generator.random(DRAWS)) ** (1 / (labels - 1))
    figures = np.sort(generator.poisson(mean))
    below = np.searchsorted(figures, margins, side="right") / DRAWS
    return float(np.average(below, weights=[number for number, _ in kinds]))


def surely_drowned(kinds: Kinds, records: int) -> float:
    """The least share of figures within their margin of error, whatever the data are.

    Figures beyond it are at least ⌊margin⌋ + 1, and add up to at most the number of records.
    """
    loose = sum(number for number, margin in kinds if margin > 0)
    least = min((margin for _, margin in kinds if margin > 0), default=0.0)
    beyond = records // (math.floor(least) + 1)
    return max(0, loose - beyond) / sum(number for number, _ in kinds)


def _mean(ratios: Iterable[float]) -> float:
    """The geometric mean; 1 of nothing."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logs) / max(len(logs), 1))


def _spends(trial: Mapping[str, _Trial]) -> list[Spend]:
    return [spend_of(one.design.mechanism) for one in trial.values()]


def _one_way(domain: Domain) -> Iterator[Names]:
    """The margin of every axis and level."""
    return ((level.name,) for axis in domain.axes for level in axis.named)


def _two_steps(budget: Budget) -> str:
    """What a change by two persons counts as."""
    if budget.beside:
        return "the μ of its Gaussian noise doubles"
    return f"{budget} as {budget.for_group(2)}"


def _of(one: _Trial) -> str:
    """Which of several releases is spoken of."""
    return f"{one.wanted.name}: " if one.wanted.folder else ""


def _words(names: Names | None) -> str:
    return "the cells" if names is None else " × ".join(names) or "the grand total"


def _delta_words(delta: float) -> str:
    return f"{delta:g}".replace("e-0", "e-")


def _percent(share: float) -> str:
    return f"{math.floor(100 * share)} %"


def _times(gain: float) -> str:
    return f"{gain:,.3g} times less squared error"


def _figure(value: float) -> str:
    return f"{value:,.4g}"


def _up(value: float) -> str:
    """Three significant digits, rounded up: never more private than it is."""
    if not 0 < value < math.inf:
        return str(value)
    places = 2 - math.floor(math.log10(value))
    return f"{math.ceil(value * 10**places - 1e-9) / 10**places:,.{max(places, 0)}f}"


def yaml_of(value: Any) -> str:
    """A value on one line, as the reader of specifications takes it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{yaml_of(k)}: {yaml_of(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(yaml_of, value))}]"
    if isinstance(value, str) and PLAIN.fullmatch(value) and load_yaml(value).data == value:
        return value
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
