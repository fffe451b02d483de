"""What the fault suite has survived so far, for the table it ends with."""

from __future__ import annotations

from collections import Counter

TABLE = ("load held", "faults survived", "bad inputs tried", "losses")
counted: Counter[str] = Counter()


def faults(number: int = 1) -> None:
    """A crash, a cut, a full disk: something broke, and everything was there afterwards."""
    counted["faults survived"] += number


def bad_inputs(number: int = 1) -> None:
    counted["bad inputs tried"] += number


def load(turns: int) -> None:
    """So many turns came in while others asked, and all of them were recorded."""
    counted["load held"] += turns


def losses(number: int) -> None:
    counted["losses"] += number
