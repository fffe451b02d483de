"""What the fault suite has survived so far, for the table it ends with."""

from __future__ import annotations

from collections import Counter

_UNITS = {
    "load held": "turns came in while others asked, and all were recorded",
    "faults survived": "crashes, cuts, full disks and the like, with everything there afterwards",
    "bad inputs tried": "lines, rows, requests, records and settings that were not what they should be",
}
counted: Counter[str] = Counter()
notes: list[str] = []  # what was measured on the way


def faults(number: int = 1) -> None:
    counted["faults survived"] += number


def bad_inputs(number: int = 1) -> None:
    counted["bad inputs tried"] += number


def load(turns: int) -> None:
    counted["load held"] += turns


def note(measured: str) -> None:
    notes.append(measured)


def table(losses: int) -> list[str]:
    """The lines of the table; a loss is a test that failed."""
    rows = [(name, counted[name], unit) for name, unit in _UNITS.items()]
    rows.append(("losses", losses, "promises that did not hold"))
    return [*(f"{name:<18}{number:>10,}  {unit}" for name, number, unit in rows), *notes]
