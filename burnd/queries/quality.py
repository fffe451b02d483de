"""How well work went: prompts that needed no second try, and how sessions ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable
from functools import cache, partial
from math import sqrt
from typing import Any, Final, NamedTuple

from burnd.queries import dimensions
from burnd.queries.dimensions import Dimension
from burnd.queries.filters import Chosen
from burnd.queries.kinds import Kinds
from burnd.queries.reading import Reader
from burnd.queries.scanning import PROMPTS
from burnd.queries.tally import Tally
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

    @classmethod
    def over(cls, judgements: Collection[Judgement]) -> Judgement:
        """All of them in one."""
        whole = cls()
        whole.edit_prompts = sum(one.edit_prompts for one in judgements)
        whole.one_shot_prompts = sum(one.one_shot_prompts for one in judgements)
        whole.outcomes = {said: sum(one.outcomes[said] for one in judgements) for said in OUTCOMES}
        return whole

    def answer(self, turns: Tally) -> dict[str, Any]:
        """The rates of a row; those by turn come from `turns`, the sums of the same row."""
        return {
            "editTurns": turns.edits,
            "oneShotTurns": turns.one_shots,
            "oneShotRate": rate(turns.one_shots, turns.edits),
            "editPrompts": self.edit_prompts,
            "oneShotPrompts": self.one_shot_prompts,
            "oneShotPromptRate": rate(self.one_shot_prompts, self.edit_prompts),
            "oneShotInterval": wilson(self.one_shot_prompts, self.edit_prompts),
            "sessions": self.outcomes,
        }


class Quality(NamedTuple):
    """The judgement of everything selected, and by row."""

    total: Judgement
    by_key: dict[Hashable, Judgement]

    def of(self, key: Hashable) -> Judgement:
        return self.by_key.get(key) or Judgement()


def qualities(
    view: View, reader: Reader, chosen: Chosen, dimension: Dimension, shown: Collection[Hashable], rows: int
) -> Quality:
    """Judges prompts where their first edit was selected, and sessions where their last turn was.

    Of so many rows as there are these are shown; the others need not be judged.
    """
    if dimension.narrowed is None or len(shown) > rows / 2:
        by_key = _judged(view, reader, chosen.kinds, dimension)
        return Quality(Judgement.over(by_key.values()), by_key)
    few = Reader(view, dimension.narrowed(chosen.selection, frozenset(shown)), chosen.kinds)
    undivided = Reader(view, chosen.selection.undivided, chosen.kinds)
    by_model = dimensions.dimension(view, "model", chosen.selection)
    total = Judgement.over(_judged(view, undivided, chosen.kinds, by_model).values())
    return Quality(total, _judged(view, few, chosen.kinds, dimension))


def _judged(view: View, reader: Reader, kinds: Kinds, dimension: Dimension) -> dict[Hashable, Judgement]:
    by, label = dimension.by, dimension.label
    judged: defaultdict[Hashable, Judgement] = defaultdict(Judgement)
    for keys, number, retries, (count,) in reader.read_prompts(by):
        judgement = judged[label(keys, kinds[number])]
        judgement.edit_prompts += count
        judgement.one_shot_prompts += count if retries == 0 else 0
    ended = cache(partial(_ended, view))  # of very many sessions few end in different ways
    facts = _FACTS.format(view.now - QUIET_MS)
    for keys, number, fact, (count,) in reader.read_facts(PROMPTS._replace(name=_ROOTS), by, facts):
        kind = kinds[number]
        judged[label(keys, kind)].outcomes[ended(fact, kind.is_open)] += count
    return judged


def _ended(view: View, facts: int, is_open: bool) -> str:
    """How a session ended, by what `_FACTS` says of it."""
    rest, quality = divmod(facts, len(_QUALITIES))
    reasons, is_recent = divmod(rest, 2)
    stop, event = (_name(view, number) for number in divmod(reasons, _NAMES))
    return outcome(stop, event, quality=_QUALITIES[quality], may_go_on=is_open or bool(is_recent))


def _name(view: View, number: int) -> str | None:
    found = view.rows("SELECT name FROM names WHERE id = ?", (number,))
    return found[0][0] if found else None


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
    "(SELECT t.*, e.event FROM endings e JOIN sessions s ON s.id = e.session CROSS JOIN turns t ON t.id = e.turn "
    "WHERE s.parent_session_id IS NULL)"
)
# Why it stopped, what happened then, whether that was a moment ago, how well it is known: one number is far quicker to
# group by than so many columns, or than a text.
_QUALITIES = ("final", "partial", "empty")
_NAMES = 1 << 31  # more than there are
_FACTS = (
    f"((coalesce(x.stop_reason, 0) * {_NAMES} + coalesce(x.event, 0)) * 2 + (x.ts >= {{}})) * {len(_QUALITIES)}"
    f" + CASE x.quality WHEN 'final' THEN 0 WHEN 'partial' THEN 1 ELSE 2 END"
)
