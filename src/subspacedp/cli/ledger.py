"""`subspacedp ledger`: accounts that releases are paid from."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from subspacedp.cli.lines import Table, escape
from subspacedp.cli.parameters import Commands, Json
from subspacedp.cli.terminal import json_text, print_json, print_result, printer, say
from subspacedp.errors import BudgetError, ReleaseError

if TYPE_CHECKING:
    from subspacedp.ledger import Entry, Ledger
    from subspacedp.privacy import Budget

ledger_app = typer.Typer(
    name="ledger", help="Accounts that releases are paid from.", cls=Commands, no_args_is_help=True
)

Where = Annotated[
    str, typer.Argument(help="The ledger: a path, or postgresql://user@host/database.")
]


class Relation(StrEnum):
    """The change of the data that an account is for."""

    REPLACE = "replace-one"
    ADD_REMOVE = "add-remove-one"


@ledger_app.command()
def create(
    ledger: Where,
    account: Annotated[str, typer.Argument(help="The name of the new account.")],
    epsilon: Annotated[
        float | None, typer.Option(help="Limit ε: alone it adds up ε of pure releases.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Limit δ beside ε: all kinds of releases, exactly.")
    ] = None,
    rho: Annotated[float | None, typer.Option(help="Limit ρ, zero-concentrated.")] = None,
    mu: Annotated[float | None, typer.Option(help="Limit μ, for Gaussian noise.")] = None,
    neighbours: Annotated[
        Relation, typer.Option(help="The change of the data to protect against.")
    ] = Relation.REPLACE,
    records: Annotated[int, typer.Option(help="The most records of a person.")] = 1,
    per_cell: Annotated[
        int | None, typer.Option(help="The most of these in one cell; all by default.")
    ] = None,
    unit: Annotated[str, typer.Option(help="Whose change that is.")] = "person",
    note: Annotated[str, typer.Option(help="Anything to remember.")] = "",
    as_json: Json = False,
) -> None:
    """Open an account; the ledger is made with its first one."""
    from subspacedp.ledger import open_ledger
    from subspacedp.privacy import AddRemoveOne, ReplaceOne

    kind = ReplaceOne if neighbours is Relation.REPLACE else AddRemoveOne
    relation = kind(records=records, per_cell=per_cell)
    with open_ledger(ledger) as opened:
        new = opened.create(
            account, _limit(epsilon, delta, rho, mu), relation, unit=unit, note=note
        )
    if as_json:
        print_json(new.as_dict())
        return
    say(f"Account `{new.name}`: {new.limit}, for {new.neighbours} (unit: {new.unit}).")


@ledger_app.command()
def show(
    ledger: Where,
    account: Annotated[
        str | None, typer.Argument(help="The account; all of them by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what is spent and what is left, under every accounting."""
    data = _export(ledger, account)
    for one in data["accounts"]:
        one["open"] = sum(e["state"] in ("reserved", "drawing") for e in one.pop("entries"))
    if as_json:
        print_json(data)
        return
    from subspacedp.privacy.numbers import six_digits

    console = printer()
    for one in data["accounts"]:
        console.print(
            f"\n[bold]{escape(one['name'])}[/]: limit {_budget(one['limit'])}, "
            f"[bold]{escape(one['left'])}[/] left; {escape(one['neighbours']['name'])}, unit "
            f"{escape(one['unit'])}"
        )
        table = Table("spent", "")
        for name, words in _ACCOUNTINGS.items():
            value = one["totals"][name]
            text = "[dim]not defined[/]"
            if value is not None:
                text = f"{value:,}" if isinstance(value, int) else six_digits(value)
            table.add_row(words, text)
        console.print(table)
        if one["open"]:
            console.print(
                f"  [yellow]{one['open']} never committed; they count.[/] "
                "`subspacedp ledger history` lists them."
            )
    if not data["accounts"]:
        console.print("There are no accounts yet.")


@ledger_app.command()
def history(
    ledger: Where,
    account: Annotated[str, typer.Argument(help="The account.")],
    as_json: Json = False,
) -> None:
    """List everything that an account has paid for."""
    entries = _export(ledger, account)["accounts"][0]["entries"]
    if as_json:
        print_json(entries)
        return
    headings = ("entry", "reserved (UTC)", "state", "budget", "folder", "note")
    table = Table(*headings, numbers=[0], apart=1, fold=True)
    colours = {"committed": "green", "cancelled": "dim"}
    for entry in entries:
        linked = f"replaces {entry['replaces']}. " if entry["replaces"] is not None else ""
        table.add_row(
            str(entry["number"]),
            entry["reserved"][:19].replace("T", " "),
            f"[{colours.get(entry['state'], 'yellow')}]{entry['status']}[/]",
            "; ".join(_budget(release["budget"]) for release in entry["releases"]),
            escape(entry["folder"] or ""),
            escape(linked + entry["note"]),
        )
    printer().print(table if entries else "Nothing was spent yet.")


@ledger_app.command()
def export(
    ledger: Where,
    account: Annotated[
        str | None, typer.Argument(help="The account; all of them by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write, which must be new; else to print.")
    ] = None,
    as_json: Json = True,
) -> None:
    """Print or write everything as JSON: accounts, limits, entries, totals, invariants."""
    del as_json  # it is JSON in any case
    text = json_text(_export(ledger, account), indent=1)
    if out is None:
        print(text)
        return
    try:
        # Labels of the accounts' tables are in it: for its owner, as the ledger is.
        opened = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as handle:
            handle.write(text + "\n")
    except FileExistsError:
        raise ReleaseError(f"`{out}` exists already; it is not overwritten.") from None
    except OSError as error:
        raise ReleaseError(f"Cannot write `{out}`: {error.strerror}.") from None
    say(f"Wrote `{out}`.")


Number = Annotated[int, typer.Argument(help="The number of the entry; `history` lists them.")]


@ledger_app.command()
def cancel(
    ledger: Where,
    entry: Number,
    never_drawn: Annotated[
        str | None,
        typer.Option(
            help="Declare that no noise was drawn for an entry that says it may have been, and "
            "why that is certain. The ledger keeps the declaration."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Give back a reservation for which no noise was drawn."""
    from subspacedp.ledger import LedgerError, State, open_ledger

    with open_ledger(ledger) as opened:
        reservation = opened.reservation(entry)
        state = reservation.state
        if state is State.DRAWING and never_drawn is None:
            raise LedgerError(
                f"Entry {entry} says that noise may have been drawn, so it stays spent. If its "
                f"release was published, note it with `subspacedp ledger settle`; if it is certain "
                "that no noise was drawn, declare so with --never-drawn and the reason."
            )
        reservation.cancel(declared=never_drawn if state is State.DRAWING else None)
        _tell(opened, reservation.entry, as_json, "cancelled")


@ledger_app.command()
def settle(
    ledger: Where,
    entry: Number,
    folder: Annotated[Path, typer.Argument(help="The publication that the entry paid for.")],
    as_json: Json = False,
) -> None:
    """Note a publication that came out while the ledger could not be reached."""
    from subspacedp.ledger import open_ledger
    from subspacedp.publication.paying import settle as settle_entry

    with open_ledger(ledger) as opened:
        _tell(opened, settle_entry(opened, entry, folder), as_json, "committed")


@ledger_app.command()
def check(ledger: Where, as_json: Json = False) -> None:
    """Check that every account is as it was last written."""
    from subspacedp.ledger import open_ledger

    with open_ledger(ledger) as opened:
        _counted(*opened.verify(), as_json, "as it was last written")


@ledger_app.command()
def upgrade(ledger: Where, as_json: Json = False) -> None:
    """Seal a ledger of an earlier format, so that lost entries are noticed from now on."""
    from subspacedp.ledger import open_ledger

    with open_ledger(ledger) as opened:
        _counted(*opened.upgrade(), as_json, "sealed as it is")


def _counted(accounts: int, entries: int, as_json: bool, what: str) -> None:
    if as_json:
        print_json({"accounts": accounts, "entries": entries})
    else:
        contents = f"{_plural(accounts, 'account')}, {_plural(entries, 'entry')}"
        say(f"The ledger is {what}: {contents}.")


def _plural(number: int, noun: str) -> str:
    many = {"account": "accounts", "entry": "entries"}[noun]
    return f"{number:,} {noun if number == 1 else many}"


def _tell(ledger: Ledger, entry: Entry, as_json: bool, what: str) -> None:
    if as_json:
        print_json(entry.as_dict())
        return
    left = ledger.left(entry.account)
    say(f"Entry {entry.number} is {what}; account `{entry.account}` has {left} left.")


_ACCOUNTINGS = {
    "releases": "releases",
    "epsilon": "ε, added up",
    "epsilon_at_delta_1e-6": "ε at δ = 1e-6",
    "epsilon_at_delta_1e-9": "ε at δ = 1e-9",
    "rho": "ρ, zero-concentrated",
    "mu": "μ, Gaussian",
}


def _export(ledger: str, account: str | None) -> dict[str, Any]:
    from subspacedp.ledger import open_ledger

    with open_ledger(ledger) as opened:
        return opened.export(account)


@ledger_app.command()
def covers(
    ledger: Where,
    account: Annotated[str, typer.Argument(help="The account.")],
    labels: Annotated[
        list[str], typer.Argument(help="Labels of axes or levels, such as county=Kent sex=M.")
    ],
    as_json: Json = False,
) -> None:
    """Say whether all releases of an account together protect a number of people."""
    from subspacedp.publication.accounts import account_covers, read_labels

    coverage = account_covers(ledger, account, **read_labels(ledger, account, labels))
    if as_json:
        print_json(coverage.as_dict())
    else:
        print_result(coverage)


def _limit(
    epsilon: float | None, delta: float | None, rho: float | None, mu: float | None
) -> Budget:
    from subspacedp.privacy import budget_of_fields

    limit = budget_of_fields(epsilon=epsilon, delta=delta, rho=rho, mu=mu)
    if limit is None:
        raise BudgetError(
            "An account has one limit: --epsilon, --epsilon and --delta, --rho, or --mu."
        )
    return limit


def _budget(data: dict[str, Any]) -> str:
    from subspacedp.privacy.numbers import shown

    letters = {"epsilon": "ε", "delta": "δ", "rho": "ρ", "mu": "μ"}
    return ", ".join(f"{letters[k]} = {shown(v)}" for k, v in data.items() if k in letters)
