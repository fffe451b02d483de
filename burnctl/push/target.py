"""The interface of push targets, and the errors by which the engine decides whether to try again.

Delivery is at least once: after a crash a batch may come again, in whole or in part. Keys and `seq` make it exact, so a
target stores the cursor of a batch together with its rows or after them, never before.
"""

from __future__ import annotations

from decimal import Decimal

from burnctl.errors import BurnctlError
from burnctl.push.schema import SCHEMA_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from burnctl.push.schema import Row
else:
    Protocol = object


class Unreachable(BurnctlError):
    """Raised when a target does not answer, or cannot take rows at the moment: the same batch is sent again later."""


class Refused(BurnctlError):
    """Raised when trying again would not help: wrong credentials, missing rights, a newer schema."""


def check_schema(name: str, version: int, oldest_writer: int) -> None:
    """Raises Refused if a newer burnd made the tables, and this one must not write to them."""
    if oldest_writer > SCHEMA_VERSION:
        raise Refused(
            f"{name} has tables of a newer burnd: schema {version}, not {SCHEMA_VERSION}",
            "update burnd on this machine",
        )


class Batch:
    """Rows of one step, by table, and the cursor to store once they are there.

    `cursor` is opaque to targets. `seq` is the highest of all rows and never decreases from batch to batch. Rows of
    `causes`, `findings` and `content` replace all of their session's rows with a lower `seq`.
    """

    __slots__ = ("cursor", "machine_id", "seq", "tables")

    def __init__(self, machine_id: str, tables: dict[str, list[Row]], cursor: str, seq: int) -> None:
        self.machine_id, self.tables, self.cursor, self.seq = machine_id, tables, cursor, seq

    @property
    def size(self) -> int:
        return sum(len(rows) for rows in self.tables.values())


class Totals:
    """Turns of one day and model: their number, their tokens in the order of the columns, and their cost."""

    __slots__ = ("cost", "tokens", "turns")

    def __init__(self, turns: int = 0, tokens: tuple[int, ...] = (0,) * 6, cost: Decimal | None = None) -> None:
        self.turns, self.tokens, self.cost = turns, tokens, cost

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Totals):
            return NotImplemented
        return (self.turns, self.tokens, self.cost or 0) == (other.turns, other.tokens, other.cost or 0)

    def __repr__(self) -> str:
        return f"Totals({self.turns}, {self.tokens}, {self.cost})"

    __hash__ = None  # type: ignore[assignment]


DayModel = tuple[str, str]  # a day of UTC such as 2026-11-16, and a model


class Target(Protocol):
    """A place to push to. Every method raises Unreachable or Refused, with a sentence for the user."""

    def open(self, machine_id: str) -> str | None:
        """Creates tables and views that are missing, and checks the schema version of those that are there.

        Returns the cursor that is stored for this machine, if any.
        """

    def send(self, batch: Batch) -> None:
        """Writes all rows, then the cursor. A later batch has equal or higher sequence numbers."""

    def finish_reset(self, machine_id: str, first_seq: int) -> None:
        """Deletes the rows of this machine with a lower `seq`: a full resend did not have them. May be repeated."""

    def erase(self, machine_id: str, session_ids: list[str], before: int) -> None:
        """Deletes the content of sessions with a lower `seq`, physically as soon as the target can."""

    def totals(self, machine_id: str) -> dict[DayModel, Totals]:
        """The totals of this machine's turns by day and model, each turn once, without deleted ones."""

    def close(self) -> None:
        """Closes connections."""
