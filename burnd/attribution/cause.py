"""What tokens were spent on: one cause, and all causes of a rail, of which a report shows a few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple, overload

import msgspec

from burnd.attribution.blocks import Kind
from burnd.attribution.rates import Rate, Spent
from burnd.attribution.steps import Origin


class Cause(msgspec.Struct, frozen=True, gc=False):
    """One thing that tokens were spent on.

    `spent` is all it was billed for, what it took to say it included. `entered` is how many tokens it brought into the
    context, `size` these and those from before, in turns that were not selected, `rides` in how many later turns it was
    still there, `reentries` in how many of these it was not read from the cache but paid in full again. `largest` is
    the most of it that came in at once, in whichever turn, and `end` the place on the row up to which it then stood.
    """

    kind: Kind
    spent: Mapping[Rate, Spent]
    turn_index: int = 0
    message_id: str = ""
    call_id: str | None = None
    tool: str | None = None
    target: str | None = None
    is_error: bool | None = None
    entered: int = 0
    size: int = 0
    rides: int = 0
    reentries: int = 0
    largest: int = 0
    end: int = 0


class Sizes(NamedTuple):
    """By owner, as `Cause` has them."""

    entered: list[int]
    size: list[int]
    rides: list[int]
    reentries: list[int]
    largest: list[int]
    end: list[int]


Paid = tuple[int, ...]  # as `Spent`, of which there may be too many to make one of each


class Causes(Sequence[Cause]):
    """The causes of a rail in the order in which they began: many thousands perhaps, each made when it is asked for.

    `paid` is by rate what each of them paid at it.
    """

    def __init__(
        self, origins: Sequence[Origin], owners: Sequence[int], sizes: Sizes, paid: Mapping[Rate, Sequence[Paid]]
    ) -> None:
        self._origins = origins
        self._owners = owners
        self._sizes = sizes
        self.paid = paid

    def __len__(self) -> int:
        return len(self._owners)

    @overload
    def __getitem__(self, at: int) -> Cause: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Cause]: ...
    def __getitem__(self, at: int | slice) -> Cause | Sequence[Cause]:
        return self._all[at] if isinstance(at, slice) else self._made(at)

    def __iter__(self) -> Iterator[Cause]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all)

    @cached_property
    def _all(self) -> tuple[Cause, ...]:
        return tuple(map(self._made, range(len(self))))

    def origins(self) -> Iterator[Origin]:
        """What each of them is, without what it cost."""
        return (self._origins[owner] for owner in self._owners)

    def calls(self) -> Iterator[tuple[str, int]]:
        """The ids of the calls among them, and where each stands."""
        origins = self._origins
        for n, owner in enumerate(self._owners):
            call_id = origins[owner].call_id
            if call_id is not None:
                yield call_id, n

    def _made(self, at: int) -> Cause:
        owner = self._owners[at]
        origin = self._origins[owner]
        entered, size, rides, reentries, largest, end = self._sizes
        return Cause(
            origin.kind,
            {rate: Spent._make(column[at]) for rate, column in self.paid.items() if any(column[at])},
            origin.turn_index,
            origin.message_id,
            origin.call_id,
            origin.tool,
            origin.target,
            origin.is_error,
            entered[owner],
            size[owner],
            rides[owner],
            reentries[owner],
            largest[owner],
            end[owner],
        )


NONE: Final = Causes((), (), Sizes([], [], [], [], [], []), {})
