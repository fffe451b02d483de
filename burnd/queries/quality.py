"""How well work went: prompts that needed no second try, and how sessions ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping
from functools import cache, partial
from math import sqrt
from typing import Any, Final, NamedTuple

from burnd.queries.dimensions import Dimension
from burnd.queries.filters import Chosen
from burnd.queries.reading import Reader
from burnd.queries.scanning import ENDINGS
from burnd.queries.view import View

OUTCOMES: Final = ("completed", "abandoned", "errored", "unknown")
QUIET_MS: Final = 600_000  # a session that said something this recently may well go on
_DONE = frozenset(("end_turn", "stop", "stop_sequence"))
_WAITING = frozenset(("tool_use", "tool-calls"))
_REFUSED = frozenset(("refusal", "content-filter", "content_filter", "error"))
_Z = 1.959963984540054  # of the normal distribution, 95 % lie within so many deviations


class Judgement:
    """One-shot figures and outcomes of what falls to one row."""

    __slots__ = ("edit_prompts", "one_shot_prompts", "outcomes")

    def __init__(self) -> None:
        self.edit_prompts = self.one_shot_prompts = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)

    def answer(self) -> dict[str, Any]:
        return {
            "editPrompts": self.edit_prompts,
            "oneShotPrompts": self.one_shot_prompts,
            "oneShotRate": rate(self.one_shot_prompts, self.edit_prompts),
            "oneShotInterval": wilson(self.one_shot_prompts, self.edit_prompts),
            "sessions": self.outcomes,
        }


class Quality(NamedTuple):
    """The judgement of everything selected, and by row."""

    total: Judgement
    by_key: dict[Hashable, Judgement]

    def of(self, key: Hashable) -> Judgement:
        return self.by_key.get(key) or Judgement()


def qualities(view: View, reader: Reader, chosen: Chosen, dimension: Dimension, shown: Collection[Hashable]) -> Quality:
    """Judges prompts where their first edit was selected, and sessions where their last turn was; rows as are shown."""
    wanted = frozenset(shown)
    total = Judgement()
    by_key: defaultdict[Hashable, Judgement] = defaultdict(Judgement)
    for keys, number, retries, (count,) in reader.read_prompts(dimension.by):
        label = dimension.label(keys, chosen.kinds[number])
        for judged in (total, by_key[label]) if label in wanted else (total,):
            judged.edit_prompts += count
            judged.one_shot_prompts += count if retries == 0 else 0
    names: dict[int, str] = dict(view.rows(_NAMES))
    ended = cache(partial(_ended, names))  # of very many sessions few end in different ways
    facts = _FACTS.format(view.now - QUIET_MS)
    for keys, number, fact, (count,) in reader.read_facts(ENDINGS._replace(name=_ROOTS), dimension.by, facts):
        kind = chosen.kinds[number]
        said, label = ended(fact, kind.is_open), dimension.label(keys, kind)
        for judged in (total, by_key[label]) if label in wanted else (total,):
            judged.outcomes[said] += count
    return Quality(total, by_key)


def _ended(names: Mapping[int, str], facts: str, is_open: bool) -> str:
    """How a session ended, by what `_FACTS` says of it."""
    stop, event, is_recent, quality = facts.split()
    may_go_on = is_open or is_recent == "1"
    return outcome(names.get(int(stop)), names.get(int(event)), quality=quality, may_go_on=may_go_on)


def outcome(stop: str | None, event: str | None, *, quality: str, may_go_on: bool) -> str:
    """How a session ended, by why its last turn stopped and what happened after that. docs/reports.md has the rules."""
    if event in ("api_error", "refusal") or stop in _REFUSED:
        return "errored"
    if event is not None:
        return "abandoned"
    if may_go_on and stop not in _DONE:
        return "unknown"
    if quality == "empty":
        return "errored"
    if stop in _WAITING:
        return "abandoned"
    return "completed" if stop in _DONE and quality == "final" else "unknown"


def rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def wilson(part: int, whole: int) -> list[float] | None:
    """The 95 % interval of a rate, by Wilson's score: sound for small samples and for rates near 0 and 1."""
    if not whole:
        return None
    share, square = part / whole, _Z * _Z
    middle = share + square / (2 * whole)
    spread = _Z * sqrt(share * (1 - share) / whole + square / (4 * whole * whole))
    scale = 1 + square / whole
    return [max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)]


# A child session is a part of its parent's work.
_ROOTS = (
    "(SELECT e.* FROM endings e JOIN sessions s ON s.id = e.session "
    "WHERE s.parent_session_id IS NULL AND e.turn IS NOT NULL)"
)
_FACTS = "coalesce(x.stop_reason, 0) || ' ' || coalesce(x.event, 0) || ' ' || (x.ts >= {}) || ' ' || x.quality"
_NAMES = "SELECT id, name FROM names WHERE id IN (SELECT stop_reason FROM endings UNION SELECT event FROM endings)"
