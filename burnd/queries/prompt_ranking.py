"""The selected prompts in the order of what they can weigh at most, by what is kept of each (`prompt_weights`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Any, NamedTuple

from burnd.causes.prompt_weights import HEAVIEST, UNITS, PromptKey
from burnd.queries.scanning import Clause, within
from burnd.queries.selection import Selection
from burnd.queries.view import View

_UNBOUNDED = 1 << 200
_ORDERS = {"tokens": "x.tokens", "rides": "x.rode"}


class Bound(NamedTuple):
    """A prompt and the most it can weigh."""

    most: int
    prompt: PromptKey


class Ranking:
    """Prompts of sessions that have been counted, under filters that need no sessions.

    `days` are those that count, None being all of them; `rates` is what turns of a class weigh, by column of tokens,
    where the order is by cost; any other is by what is kept of each prompt.
    """

    def __init__(
        self, view: View, chosen: Selection, days: range | None, rank: str, rates: Mapping[int, Sequence[int]]
    ) -> None:
        self._view = view
        self._order = _ORDERS.get(rank)
        self._days = days
        found = view.rows("SELECT id, members FROM prompt_sets")
        sets = {number: frozenset(map(int, members.split(","))) for number, members in found}
        used = [number for (number,) in view.rows(_KINDS) if number is not None]
        self._kinds = _touching({number: sets[number] for number in used}, chosen.kinds)
        self._places = _touching(sets, chosen.places) if chosen.places is not None else None
        wanted = {kind: _per_unit(of) for kind, of in rates.items() if chosen.kinds is None or kind in chosen.kinds}
        self._rates = {n: max((wanted.get(kind, 0) for kind in sets[n]), default=0) for n in self._kinds}
        # Whether a prompt of which a part is filtered out has any of the rest is not told by sets where both are cut.
        both = chosen.kinds is not None and chosen.places is not None
        self._whole_kinds = frozenset(n for n in self._kinds if sets[n] <= (chosen.kinds or sets[n])) if both else None
        self._whole_places = frozenset(n for n in sets if sets[n] <= (chosen.places or sets[n])) if both else None

    def bounds(self, most: int) -> Iterator[Bound]:
        """Those that may be selected, the heaviest first: all, or so many where they are not kept in that order."""
        if self._order is not None:
            return self._ordered(self._order, most)
        return merge(*(self._bounds_of(kinds) for kinds in sorted(self._kinds)), key=lambda bound: -bound.most)

    def _bounds_of(self, kinds: int) -> Iterator[Bound]:
        rate, terms = self._rates[kinds], [Clause(f"x.kinds = {kinds}"), *self._terms()]
        sql = (
            f"SELECT x.weight, x.session, x.prompt_id FROM prompt_weights x WHERE {_all(terms)} ORDER BY x.weight DESC"
        )
        for weight, *prompt in self._view.db.execute(sql, _bound(terms)):
            yield Bound(weight * rate if weight < HEAVIEST else _UNBOUNDED, (prompt[0], prompt[1]))

    def _ordered(self, column: str, most: int) -> Iterator[Bound]:
        terms = [*within("x.kinds", self._kinds), *self._terms()]
        found = f"SELECT {column}, x.session, x.prompt_id FROM prompt_weights x WHERE {_all(terms)}"
        for weight, *prompt in self._view.rows(f"{found} ORDER BY 1 DESC LIMIT {most}", _bound(terms)):
            yield Bound(weight, (prompt[0], prompt[1]))

    def certain(self) -> int:
        """How many there are that certainly are selected."""
        terms = [*within("x.kinds", self._kinds), *self._terms(), *self._certain()]
        ((count,),) = self._view.rows(f"SELECT count(*) FROM prompt_weights x WHERE {_all(terms)}", _bound(terms))
        return int(count)

    def uncertain(self) -> list[PromptKey]:
        """Those of which only their rows can tell."""
        if not (certain := self._certain()):
            return []
        no = Clause(f"NOT ({_all(certain)})", tuple(_bound(certain)))
        terms = [*within("x.kinds", self._kinds), *self._terms(), no]
        found = self._view.rows(
            f"SELECT x.session, x.prompt_id FROM prompt_weights x WHERE {_all(terms)}", _bound(terms)
        )
        return [(session, prompt) for session, prompt in found]

    def _terms(self) -> list[Clause]:
        terms = [Clause("x.session NOT IN (SELECT session FROM changed)")]
        if self._days is not None:
            terms.append(Clause(f"x.day < {self._days.stop} AND x.day + x.days >= {self._days.start}"))
        return [*terms, *within("x.places", self._places)]

    def _certain(self) -> list[Clause]:
        terms = []
        if self._days is not None:
            terms.append(Clause(f"x.day >= {self._days.start} AND x.day + x.days < {self._days.stop}"))
        if self._whole_kinds is not None:
            kinds, places = within("x.kinds", self._whole_kinds)[0], within("x.places", self._whole_places)[0]
            terms.append(Clause(f"({kinds.sql} OR {places.sql})", (*kinds.bound, *places.bound)))
        return terms


def _touching(sets: dict[int, frozenset[int]], chosen: frozenset[int] | None) -> frozenset[int]:
    return frozenset(n for n, members in sets.items() if chosen is None or members & chosen)


def _per_unit(rates: Sequence[int]) -> int:
    """What a unit of weight comes to at most, rounded up."""
    return max(0, *(-(-rate // unit) for rate, unit in zip(rates, UNITS, strict=True)))


def _all(terms: Sequence[Clause]) -> str:
    return " AND ".join(term.sql for term in terms)


def _bound(terms: Sequence[Clause]) -> list[Any]:
    return [value for term in terms for value in term.bound]


# The sets of classes that there are, in a handful of steps through the table: far more sets are of places.
_KINDS = """
WITH RECURSIVE k(id) AS (SELECT min(kinds) FROM prompt_weights UNION ALL
  SELECT (SELECT min(kinds) FROM prompt_weights WHERE kinds > k.id) FROM k WHERE k.id IS NOT NULL)
SELECT id FROM k
"""
