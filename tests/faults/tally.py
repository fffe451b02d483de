"""Counts for the table at the end of the fault suite."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

_UNITS = {
    "load held": "turns came in while others asked, and all were recorded",
    "faults survived": "crashes, cuts, full disks and the like, with everything there afterwards",
    "bad inputs tried": "lines, rows, requests, records and settings that were not what they should be",
    "losses": "promises that did not hold: tests that failed, wherever they stand",
}
counted: Counter[str] = Counter()
notes: list[str] = []  # what was measured on the way
not_tried: Counter[str] = Counter()  # tests that were skipped, by their reasons


def faults(number: int = 1) -> None:
    counted["faults survived"] += number


def bad_inputs(number: int = 1) -> None:
    counted["bad inputs tried"] += number


def load(turns: int) -> None:
    counted["load held"] += turns


def note(measured: str) -> None:
    notes.append(measured)


def losses(number: int) -> None:
    counted["losses"] += number


def add_to(file: Path) -> None:
    """Counts what runs before this one left in a file, and leaves the sum there for the next."""
    if file.exists():
        before = json.loads(file.read_text())
        counted.update(before["counted"])
        not_tried.update(before["not tried"])
        notes[:0] = before["notes"]
    file.write_text(json.dumps({"counted": counted, "not tried": not_tried, "notes": notes}))


def table() -> list[str]:
    """The lines of the table."""
    rows = [(name, counted[name], unit) for name, unit in _UNITS.items()]
    why = ", for these reasons:" if not_tried else ""
    rows.append(("not tried", not_tried.total(), f"tests that were skipped{why}"))
    lines = [f"{name:<18}{number:>10,}  {unit}" for name, number, unit in rows]
    return [*lines, *(f"{number:>28,}  {reason}" for reason, number in not_tried.most_common()), *notes]
