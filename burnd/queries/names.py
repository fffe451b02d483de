"""Resolves names in filters: sessions by id or prefix, sources, models, projects, branches, versions, subagents."""

from __future__ import annotations

import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from typing import Final, NamedTuple

from burnd.harness.registry import PRODUCTS, SOURCES
from burnd.queries.money import TurnClass, TurnClasses, shown_model
from burnd.queries.view import Folder, Missing, Mistaken, NoSession, Refusal, SqlRow, View
from burnd.records.names import canonical_remote

MOST_NAMES = 8
_NOT_WORDS = re.compile(r"[^a-z0-9]+")


def by_source(classes: TurnClasses, given: str) -> frozenset[int]:
    if given not in SOURCES and not any(one.source == given for one in classes.values()):
        raise _no_source(given)
    return _matching(classes, lambda one: one.source == given)


def check_source(view: View, given: str) -> None:
    """Raises Mistaken if the source is unknown and no session has it."""
    if given not in SOURCES and not view.rows(_OF_SOURCE, (given,)):
        raise _no_source(given)


def _no_source(given: str) -> Mistaken:
    return Mistaken(f"unknown source {given[:40]!r}", f"one of: {', '.join(SOURCES)}")


def by_provider(classes: TurnClasses, given: str) -> frozenset[int]:
    matches = _matching(classes, lambda one: (one.provider or "").lower() == given.lower())
    if not matches:
        raise no_such("provider", given, {one.provider for one in classes.values()})
    return matches


def by_model(view: View, classes: TurnClasses, given: str | list[str]) -> frozenset[int]:
    """A text may name several, separated by commas."""
    texts = given.split(",") if isinstance(given, str) else given
    names = [name for text in texts if (name := text.strip())]
    if not names:
        raise Mistaken("a model's name must not be empty")
    return frozenset().union(*(_one_model(view, classes, name) for name in names))


def _one_model(view: View, classes: TurnClasses, given: str) -> frozenset[int]:
    """A model by its name in a log or in reports, else all models of the family it names.

    `sonnet` matches every model with that word in its name, `claude-opus-4` every model with these words in a row. A
    model that is only in the price list matches no turn.
    """
    model = shown_model(view.prices, given).lower()
    exact = _matching(classes, lambda one: given.lower() == one.logged.lower() or model == one.model.lower())
    if exact:
        return exact
    family = models_like(classes, given)
    if not family and view.prices.find(given) is None:
        raise no_such("model", given, {one.model for one in classes.values()})
    return family


def models_like(classes: TurnClasses, given: str) -> frozenset[int]:
    """The classes of models with these words in a row in their names."""
    words = f" {_words(given)} "
    return _matching(classes, lambda one: words in f" {_words(one.model)} " or words in f" {_words(one.logged)} ")


def _words(name: str) -> str:
    return _NOT_WORDS.sub(" ", name.lower()).strip()


def _matching(classes: TurnClasses, is_match: Callable[[TurnClass], bool]) -> frozenset[int]:
    return frozenset(number for number, one in classes.items() if is_match(one))


def branch(view: View, given: str) -> frozenset[int]:
    rows = view.rows("SELECT id FROM names WHERE name = ?", (given,))
    if not rows:
        raise Missing(f"no usage recorded for branch {given[:80]!r}", "burnctl summary --by branch lists them")
    return frozenset(row[0] for row in rows)


def version(view: View, given: str) -> frozenset[int]:
    """2.1 matches 2.1.0 and 2.1.4."""
    names: dict[str, int] = {name: number for number, name in view.rows(_VERSIONS)}
    numbers = {number for name, number in names.items() if name == given or name.startswith(f"{given}.")}
    if not numbers:
        raise no_such("version", given, names)
    return frozenset(numbers)


def subagents(view: View, given: str) -> frozenset[int]:
    """Agents by name, and subagents by id."""
    return frozenset(row[0] for row in view.rows(_SUBAGENTS, (given, given)))


def no_such(what: str, given: str, recorded: Iterable[str | None]) -> Missing:
    names = sorted(name for name in recorded if name)
    near = get_close_matches(given.lower(), names, MOST_NAMES, 0.5)
    hint = f"recorded are: {', '.join(names[:MOST_NAMES])}" if names else "nothing is recorded yet"
    return Missing(f"no usage recorded for {what} {given[:80]!r}", f"did you mean: {', '.join(near)}" if near else hint)


_OF_SOURCE = "SELECT 1 FROM sessions s JOIN names n ON n.id = s.source WHERE n.name = ? LIMIT 1"
_VERSIONS = "SELECT id, name FROM names WHERE id IN (SELECT version FROM sums)"
_SUBAGENTS = "SELECT s.id FROM subagents s LEFT JOIN names n ON n.id = s.type WHERE s.agent_id = ? OR n.name = ?"


LONGEST_PROJECT = 4096
FolderAndKey = tuple[str | None, str | None]  # a folder, and the key of its remote


class Project(NamedTuple):
    folders: AbstractSet[str]
    keys: AbstractSet[str]

    def covers(self, folder: str | None, key: str | None) -> bool:
        return key in self.keys or (folder is not None and any(_is_in(folder, own) for own in self.folders))


def project_of(view: View, given: str) -> Project:
    """The project given by a folder, by a remote in any spelling, or by the last parts of either.

    The root of a repository means all its clones and worktrees, a folder below it only that folder and its subfolders,
    or the repository if nothing is recorded there. Reads no disk. Raises Mistaken; for a name, also Missing and
    Refusal.
    """
    if not given.strip() or len(given) > LONGEST_PROJECT:
        raise Mistaken("project is empty or too long", "give a folder, a remote like github.com/me/it, or its end")
    in_turns: list[FolderAndKey] = [(folder, key) for _, folder, key in view.rows(_PLACES)]
    if os.path.isabs(given):
        return _by_folder(view.folders.get(given) or Folder.unseen(given), in_turns)
    return _by_name(given, {*in_turns, *view.rows(_OF_SESSIONS)})


def project_among(given: str, places: Iterable[FolderAndKey]) -> Project:
    """The same among these places, of which nothing is on this disk."""
    if not given.strip() or len(given) > LONGEST_PROJECT:
        raise Mistaken("project is empty or too long", "give a folder, a remote like github.com/me/it, or its end")
    pairs = {*places}
    return _by_folder(Folder.unseen(given), pairs) if os.path.isabs(given) else _by_name(given, pairs)


def future_project(view: View, given: str) -> Project:
    """The same for future turns: an unknown name is taken as a remote."""
    try:
        return project_of(view, given)
    except Missing:
        return Project(frozenset(), frozenset((canonical_remote(given) or given.strip("/"),)))


def places(view: View, given: str) -> frozenset[int] | None:
    """None if these are all places."""
    project, rows = project_of(view, given), view.rows(_PLACES)
    own = frozenset(place for place, folder, key in rows if project.covers(folder, key))
    return own if len(own) < len(rows) else None


def sessions(view: View, given: str) -> set[int]:
    """The rows of sessions that belong to a project or have a turn in it."""
    project = project_of(view, given)
    of_turns = [(place,) for place, folder, key in view.rows(_PLACES) if project.covers(folder, key)]
    folders = [(number,) for number, folder in view.rows(_FOLDERS) if project.covers(folder, None)]
    rows = view.keyed(_IN_PLACES, of_turns) + view.keyed(_IN_FOLDERS, folders)
    return {row for (row,) in rows + view.keyed(_OF_REMOTES, [(key,) for key in project.keys])}


def folders(view: View) -> list[str]:
    """Those of the newest sessions first."""
    newest: dict[str, int] = {}
    for folder, key, at in [*view.rows(_NEWEST_IN), *((folder, key, 0) for _, folder, key in view.rows(_PLACES))]:
        for name in (folder, key):
            if name is not None and os.path.isabs(name):
                newest[name] = max(newest.get(name, 0), at)
    return sorted(newest, key=lambda name: (-newest[name], name))


def _by_folder(folder: Folder, places: Iterable[FolderAndKey]) -> Project:
    within = [(own, key) for own, key in places if own and any(_is_in(own, name) for name in folder.names)]
    # Keys recorded with a parent folder, for a folder that was deleted.
    around = {key for own, key in places if key and own and any(_is_in(name, own) for name in folder.names)}
    is_inside = folder.is_inside
    if is_inside is None:
        is_inside = any(key and _is_below_root(folder, key, places) for _, key in within)
    if is_inside and within:
        return Project(frozenset(folder.names), frozenset())
    keys = around.union(folder.keys)
    repositories = {key for key in keys if os.path.isabs(key)}  # of worktrees without a remote
    return Project(repositories.union(folder.names), keys.union(folder.names))


def _is_below_root(folder: Folder, key: str, places: Iterable[FolderAndKey]) -> bool:
    """Whether a parent of this folder is recorded in the same repository."""
    above = {own for own, other in places if other == key} | ({key} if os.path.isabs(key) else set())
    return any(own not in folder.names and _is_in(name, own) for own in above - {None} if own for name in folder.names)


def _by_name(given: str, places: Iterable[FolderAndKey]) -> Project:
    """By the full remote in any spelling, else by the last parts of a remote or folder, if these name one project."""
    remote = canonical_remote(given) or given.strip("/")
    if exact := {place for place in places if remote == place[1] or given in place}:
        return _all_of(exact)
    ends = {place for place in places if any(f"/{name}".endswith(f"/{remote}") for name in place if name)}
    names = {key or folder for folder, key in ends or places} - {None}
    if not ends:
        raise no_such("project", given, names | {os.path.basename(name) for name in names if name})
    if len(names) > 1:
        candidates = ", ".join(sorted(name for name in names if name)[:MOST_NAMES])
        raise Refusal(f"{given[:80]!r} matches several projects", f"give one of: {candidates}")
    return _all_of(ends)


def _all_of(places: Iterable[FolderAndKey]) -> Project:
    """All clones if there is a remote, else the folder."""
    folders = frozenset(folder for folder, key in places if folder and not key)
    return Project(folders, frozenset(key for _, key in places if key))


def _is_in(folder: str, other: str) -> bool:
    return folder == other or folder.startswith(other.rstrip("/") + "/")


# Only places that have a turn now: places of earlier revisions would depend on when the index was built.
_PLACES = """
SELECT p.id, f.name, k.name FROM places p LEFT JOIN names f ON f.id = p.project
LEFT JOIN names k ON k.id = p.project_key WHERE p.id IN (SELECT place FROM sums)
"""
_OF_SESSIONS = (
    "SELECT f.name, k.name FROM (SELECT DISTINCT project, project_key FROM sessions) s "
    "LEFT JOIN names f ON f.id = s.project LEFT JOIN names k ON k.id = s.project_key"
)
_NEWEST_IN = (
    "SELECT f.name, k.name, max(coalesce(s.updated_at, 0)) FROM sessions s LEFT JOIN names f ON f.id = s.project "
    "LEFT JOIN names k ON k.id = s.project_key GROUP BY s.project, s.project_key"
)
_FOLDERS = "SELECT id, name FROM names WHERE id IN (SELECT project FROM sessions)"
_IN_PLACES = "SELECT DISTINCT session FROM sums WHERE place IN ({keys})"
_IN_FOLDERS = "SELECT id FROM sessions WHERE project IN ({keys})"
_OF_REMOTES = "SELECT id FROM sessions WHERE project_key IN (SELECT id FROM names WHERE name IN ({keys}))"


_SHOWN: Final = 8
_HINT: Final = "burnctl sessions lists them"
# Ids of harnesses, and prefixes of them.
_FORMS: Final = {product.session_ids: None for product in PRODUCTS}
_WHOLE: Final = re.compile("|".join(whole for whole, _ in _FORMS))
_SHORTENED: Final = re.compile("|".join(shortened for _, shortened in _FORMS))


def row_of(view: View, given: str) -> int:
    """The session with this id or unique prefix. Raises Missing or Refusal."""
    if not given:
        raise Mistaken("a session's id must not be empty", _HINT)
    matches = view.rows("SELECT id, session_id FROM sessions WHERE session_id = ?", (given,))
    # A range, since LIKE treats an underscore as any character.
    matches = matches or view.rows(_BEGINNING, (given, given + "\U0010ffff", _SHOWN + 1))
    if not matches:
        raise NoSession(f"no session is or begins with {given[:80]!r}", _HINT)
    if len(matches) > 1:
        raise _ambiguous(given, matches)
    return int(matches[0][0])


def resolve_stamp_sessions(
    db: sqlite3.Connection, names: Iterable[str], *, is_growing: bool = False
) -> dict[str, str | Refusal | None]:
    """Resolves the ids or unique prefixes that stamps name; Refusal if several sessions match.

    An id that no session begins with belongs to a future session, unless it looks like a shortened id of a harness;
    then None. With `is_growing`, old logs may still add matches, so a shortened id is None too.
    """
    return {name: _resolve(db, name, is_growing=is_growing) for name in names}


def _resolve(db: sqlite3.Connection, given: str, *, is_growing: bool) -> str | Refusal | None:
    if _WHOLE.fullmatch(given) or db.execute(_EXACT, (given,)).fetchone() is not None:
        return given
    matches = db.execute(_BEGINNING, (given, given + "\U0010ffff", _SHOWN + 1)).fetchall()
    if len(matches) > 1:
        return _ambiguous(given, matches)
    is_shortened = _SHORTENED.fullmatch(given) is not None
    if matches and not (is_growing and is_shortened):
        return str(matches[0][1])
    return None if is_shortened else given


def no_such_session(given: str) -> str:
    return f"no session begins with {given[:80]!r}, and it is too short for the id of a session to come"


def _ambiguous(given: str, matches: Sequence[SqlRow]) -> Refusal:
    ids = ", ".join(session_id for _, session_id in matches[:_SHOWN]) + (", ..." if len(matches) > _SHOWN else "")
    return Refusal(f"more than one session begins with {given[:80]!r}", f"give a longer prefix: {ids}")


def short_ids(view: View, session_ids: Iterable[str]) -> dict[str, str]:
    """The shortest unique prefixes, by comparison with the neighbours in order."""
    rows = view.keyed(_NEIGHBOURS, [(session_id,) for session_id in session_ids])
    return {own: own[: 1 + max(_common_prefix(own, before), _common_prefix(own, after))] for own, before, after in rows}


def _common_prefix(one: str, other: str) -> int:
    for number, (char, of_other) in enumerate(zip(one, other, strict=False)):
        if char != of_other:
            return number
    return min(len(one), len(other))


# Condition on a row `s` of sessions: excludes logs that only have summaries of other sessions' lines.
IS_A_SESSION = """
(s.kept_count + s.pruned_count + s.said_count > 0 OR s.created_by IS NOT NULL OR s.title IS NOT NULL
 OR EXISTS (SELECT 1 FROM turns t WHERE t.session = s.id)
 OR EXISTS (SELECT 1 FROM facts f WHERE f.session = s.id AND f.kind IN ('copy', 'event', 'compaction'))
 OR EXISTS (SELECT 1 FROM messages m WHERE m.session = s.id))
"""
_EXACT = f"SELECT 1 FROM sessions s WHERE {IS_A_SESSION} AND s.session_id = ?"
_BEGINNING = f"""
SELECT s.id, s.session_id FROM sessions s
WHERE {IS_A_SESSION} AND s.session_id >= ? AND s.session_id < ? ORDER BY 2 LIMIT ?
"""
_NEIGHBOURS = """
WITH wanted(own) AS ({keys})
SELECT own, coalesce((SELECT max(session_id) FROM sessions WHERE session_id < own), ''),
       coalesce((SELECT min(session_id) FROM sessions WHERE session_id > own), '') FROM wanted
"""


def below(view: View, sessions: Iterable[int]) -> dict[int, str]:
    """With all descendants: ids by row."""
    return dict(view.keyed(_BELOW, [(session,) for session in sessions]))


def by_root(view: View, sessions: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """The members of the families of these sessions, by root. A cycle of parents, possible only by damage, is cut."""
    parents: dict[int, int] = dict(view.rows(_PARENTS))
    roots: dict[int, int] = {}

    def root_of(session: int) -> int:
        line = [session]
        while (above := parents.get(line[-1])) is not None and above not in line and line[-1] not in roots:
            line.append(above)
        top = roots.get(line[-1], line[-1] if parents.get(line[-1]) is None else min(line))
        roots.update(dict.fromkeys(line, top))
        return top

    tops = {root_of(session) for session in sessions}
    members: defaultdict[int, set[int]] = defaultdict(set)
    for session in (*parents, *sessions):
        if (root := root_of(session)) in tops:
            members[root].add(session)
    return {root: (root, *sorted(members[root] - {root})) for root in sorted(tops)}


_BELOW = """
WITH RECURSIVE family(id, session_id) AS (
  SELECT id, session_id FROM sessions WHERE id IN ({keys})
  UNION SELECT s.id, s.session_id FROM family f JOIN sessions s ON s.parent_session_id = f.session_id
) SELECT id, session_id FROM family
"""
_PARENTS = """
SELECT c.id, p.id FROM sessions c JOIN sessions p ON p.session_id = c.parent_session_id
WHERE c.parent_session_id IS NOT NULL
"""
