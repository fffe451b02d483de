"""Finds what people name: sources, providers, models by id or family, branches, subagents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

from burnd.harness.registry import SOURCES
from burnd.queries.kinds import Kind, Kinds, shown_model
from burnd.queries.view import Missing, Mistaken, View

SHOWN = 8
_NOT_WORDS = re.compile(r"[^a-z0-9]+")


def by_source(kinds: Kinds, given: str) -> frozenset[int]:
    if given not in SOURCES and not any(kind.source == given for kind in kinds):
        raise _no_source(given)
    return _those(kinds, lambda kind: kind.source == given)


def check_source(view: View, given: str) -> None:
    """Raises Mistaken where there neither are nor could be sessions of it."""
    if given not in SOURCES and not view.rows(_OF_SOURCE, (given,)):
        raise _no_source(given)


def _no_source(given: str) -> Mistaken:
    return Mistaken(f"{given[:40]!r} is no source", f"one of: {', '.join(SOURCES)}")


def by_provider(kinds: Kinds, given: str) -> frozenset[int]:
    found = _those(kinds, lambda kind: (kind.provider or "").lower() == given.lower())
    if not found:
        raise no_such("provider", given, {kind.provider for kind in kinds if kind.provider})
    return found


def by_model(view: View, kinds: Kinds, given: str | list[str]) -> frozenset[int]:
    """Turns of any of these models; several may stand in one text with commas between them."""
    texts = given.split(",") if isinstance(given, str) else given
    names = [name for text in texts if (name := text.strip())]
    if not names:
        raise Mistaken("a model's name must not be empty")
    return frozenset().union(*(_one_model(view, kinds, name) for name in names))


def _one_model(view: View, kinds: Kinds, given: str) -> frozenset[int]:
    """A model by its name in a log or in reports; where none has exactly that name, all of the family it names.

    `sonnet` is every model with that word in its name, `claude-opus-4` every one with these words in a row. A model
    that the price list knows but nobody used is no mistake.
    """
    shown = shown_model(view.prices, given).lower()
    exact = _those(kinds, lambda kind: given.lower() == kind.logged.lower() or shown == kind.model.lower())
    if exact:
        return exact
    words = f" {_words(given)} "
    family = _those(kinds, lambda kind: words in f" {_words(kind.model)} " or words in f" {_words(kind.logged)} ")
    if not family and view.prices.find(given) is None:
        raise no_such("model", given, {kind.model for kind in kinds})
    return family


def _words(name: str) -> str:
    return _NOT_WORDS.sub(" ", name.lower()).strip()


def _those(kinds: Kinds, wanted: Callable[[Kind], bool]) -> frozenset[int]:
    return frozenset(kind.id for kind in kinds if wanted(kind))


def branch(view: View, given: str) -> frozenset[int]:
    found = view.rows("SELECT id FROM names WHERE name = ?", (given,))
    if not found:
        raise Missing(f"no turn was made on a branch {given[:80]!r}", "burnctl summary --by branch lists them")
    return frozenset(row[0] for row in found)


def version(view: View, given: str) -> frozenset[int]:
    """The release of a harness by its whole name, or all that begin with these parts: 2.1 is 2.1.0 and 2.1.4."""
    names: dict[str, int] = {name: number for number, name in view.rows(_VERSIONS)}
    found = {number for name, number in names.items() if name == given or name.startswith(f"{given}.")}
    if not found:
        raise no_such("version", given, names)
    return frozenset(found)


def subagents(view: View, given: str) -> frozenset[int]:
    """The agents with this name, and subagents with this id."""
    return frozenset(row[0] for row in view.rows(_SUBAGENTS, (given, given)))


def no_such(what: str, given: str, known: Iterable[str | None]) -> Missing:
    names = sorted(name for name in known if name)
    near = get_close_matches(given.lower(), names, SHOWN, 0.5)
    hint = f"recorded are: {', '.join(names[:SHOWN])}" if names else "nothing is recorded yet"
    return Missing(f"no turn is of a {what} {given[:80]!r}", f"did you mean: {', '.join(near)}" if near else hint)


_OF_SOURCE = "SELECT 1 FROM sessions s JOIN names n ON n.id = s.source WHERE n.name = ? LIMIT 1"
_VERSIONS = """
SELECT id, name FROM names WHERE id IN (
  SELECT version FROM session_sums WHERE level = 0 AND session NOT IN (SELECT session FROM stale_sessions)
  UNION ALL SELECT x.version FROM stale_sessions s CROSS JOIN sums x ON x.session = s.session)
"""
_SUBAGENTS = "SELECT s.id FROM subagents s LEFT JOIN names n ON n.id = s.type WHERE s.agent_id = ? OR n.name = ?"
