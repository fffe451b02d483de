"""Finds what people name: sessions by the front of an id, projects by folder or remote, models by id or family."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import get_args

from burnd.causes.cause import UNKNOWN_AGENT
from burnd.queries.kinds import Kind, Kinds, shown_model
from burnd.queries.view import Missing, Mistaken, Refusal, View
from burnd.recording.projects import canonical_remote, remote_of
from burnd.records.turn import Source

_SHOWN = 8
_LONGEST = 4096
_SOURCES = get_args(Source)
_NOT_WORDS = re.compile(r"[^a-z0-9]+")


def sessions(view: View, given: str) -> frozenset[int]:
    """The session with this id, or the only one whose id begins so, with all its child sessions."""
    found = view.rows("SELECT id FROM sessions WHERE session_id = ?", (given,)) or _by_beginning(view, given)
    family = {row[0] for row in found}
    newest = found
    while newest:
        newest = [row for row in view.keyed(_CHILDREN, newest) if row[0] not in family]
        family.update(row[0] for row in newest)
    return frozenset(family)


def _by_beginning(view: View, given: str) -> list[tuple[int, ...]]:
    if not given:
        raise Mistaken("a session's id must not be empty", "burnctl sessions lists them")
    found = view.rows(_BEGINNING, (given, given + "\U0010ffff", _SHOWN + 1))
    if not found:
        raise Missing(f"no session is or begins with {given[:80]!r}", "burnctl sessions lists them")
    if len(found) > 1:
        shown = ", ".join(row[1] for row in found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
        raise Refusal(f"more than one session begins with {given[:80]!r}", f"say more of it: {shown}")
    return [(found[0][0],)]


def by_source(kinds: Kinds, given: str) -> frozenset[int]:
    if given not in _SOURCES and not any(kind.source == given for kind in kinds):
        raise Mistaken(f"{given[:40]!r} is no source", f"one of: {', '.join(_SOURCES)}")
    return _those(kinds, lambda kind: kind.source == given)


def by_provider(kinds: Kinds, given: str) -> frozenset[int]:
    found = _those(kinds, lambda kind: (kind.provider or "").lower() == given.lower())
    if not found:
        raise _no_such("provider", given, {kind.provider for kind in kinds if kind.provider})
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
        raise _no_such("model", given, {kind.model for kind in kinds})
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


def subagents(view: View, given: str) -> tuple[frozenset[int], int | None]:
    """The subagents with this id or of this type; and the type's number, where it is one and they are all of it."""
    found = view.rows(_SUBAGENTS, (given, given))
    names = view.rows("SELECT id FROM names WHERE name = ?", (given,)) if given != UNKNOWN_AGENT else []
    of_type = names[0][0] if found and names and all(kind == names[0][0] for _, kind in found) else None
    return frozenset(number for number, _ in found), of_type


def places(view: View, given: str) -> frozenset[int] | None:
    """The places of a project: a folder with all below it and all clones of its repository, or a remote or its name.

    None where that is every place there is.
    """
    if not given.strip() or len(given) > _LONGEST:
        raise Mistaken("a project is a folder or a remote like github.com/me/it")
    known = view.rows(_PLACES)
    folder = os.path.expanduser(given)
    found = _by_folder(os.path.normpath(folder), known) if os.path.isabs(folder) else _by_name(given, known)
    return found if len(found) < len(known) else None


def _by_folder(folder: str, known: list[tuple[int, str | None, str | None]]) -> frozenset[int]:
    folders = {folder, os.path.realpath(folder)}
    keys = {key for name in folders if (key := remote_of(name))}
    # A folder that is gone is known by what was recorded of it, or of the one it was in.
    keys |= {key for _, project, key in known if key and project and any(_is_in(name, project) for name in folders)}
    inside = {number for number, project, _ in known if project and any(_is_in(project, name) for name in folders)}
    return frozenset(inside | {number for number, _, key in known if key in keys})


def _is_in(folder: str, other: str) -> bool:
    """Whether a folder is the other one or lies below it."""
    return folder == other or folder.startswith(other.rstrip("/") + "/")


def _by_name(given: str, known: list[tuple[int, str | None, str | None]]) -> frozenset[int]:
    """By the whole remote in any spelling, else by the last parts of a remote or folder, if they mean one project."""
    remote = canonical_remote(given) or given.strip("/")
    exact = frozenset(number for number, project, key in known if remote == key or given in (key, project))
    if exact:
        return exact
    ends = {
        number: key or project
        for number, project, key in known
        if any(f"/{name}".endswith(f"/{remote}") for name in (key, project) if name)
    }
    if not ends:
        names = {key or project for _, project, key in known if key or project}
        raise _no_such("project", given, names | {os.path.basename(name) for name in names if name})
    if len(set(ends.values())) > 1:
        shown = ", ".join(sorted(name for name in set(ends.values()) if name)[:_SHOWN])
        raise Refusal(f"more than one project is called {given[:80]!r}", f"say which: {shown}")
    return frozenset(ends)


def _no_such(what: str, given: str, known: Iterable[str | None]) -> Missing:
    names = sorted(name for name in known if name)
    near = get_close_matches(given.lower(), names, _SHOWN, 0.5) or names[:_SHOWN]
    hint = f"recorded are: {', '.join(near)}" if near else "nothing is recorded yet"
    return Missing(f"no turn is of a {what} {given[:80]!r}", hint)


_BEGINNING = "SELECT id, session_id FROM sessions WHERE session_id >= ? AND session_id < ? ORDER BY session_id LIMIT ?"
_CHILDREN = """
WITH w(id) AS ({keys}) SELECT c.id FROM w JOIN sessions p ON p.id = w.id
JOIN sessions c ON c.parent_session_id = p.session_id AND c.parent_session_id IS NOT NULL
"""
_SUBAGENTS = (
    "SELECT s.id, s.type FROM subagents s LEFT JOIN names n ON n.id = s.type WHERE s.agent_id = ? OR n.name = ?"
)
# Only where there is a turn now: what one that was revised said before would else depend on when the index was made.
_PLACES = (
    "SELECT p.id, f.name, k.name FROM places p LEFT JOIN names f ON f.id = p.project "
    "LEFT JOIN names k ON k.id = p.project_key WHERE EXISTS (SELECT 1 FROM sums WHERE place = p.id)"
)
