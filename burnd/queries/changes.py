"""The change feed: whole rows of turns, sessions, causes and findings that changed since a cursor, in pages.

A pass goes through the sessions that changed since the pass before, by number, and sends each changed turn in its state
at that moment. What changes during a pass is sent by the next one. Rows of one page have one `seq`, which never
decreases: of several versions of a row, the one with the highest counts.

`complete` is set on the last page of a pass, `more` if another page is due, of this pass or of the next.

A cursor of another index, of a ledger that was rewritten, or of other prices starts over: `reset` is set on every page
of that pass, and rows with a `seq` below `firstSeq` are no longer true once it is complete.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from burnd.attribution.cause_keys import MISS, PAID_LEVELS
from burnd.attribution.causes import explain
from burnd.attribution.findings import bounded
from burnd.attribution.rail_entries import RailEntries, load
from burnd.attribution.rates import Sums
from burnd.attribution.saved_findings import sizes_of
from burnd.attribution.segments import DAYS
from burnd.attribution.waste import all_findings
from burnd.contract.reports import ChangesParams
from burnd.index.sums import DAY, SHIFT_MS
from burnd.queries.export import TURN_COLUMNS, TURN_NAMES, ExportRow, turn_answer
from burnd.queries.money import CauseSum, Pricer, TurnClasses, classes_of, shown_model, shown_provider, usage
from burnd.queries.selection import tags_of
from burnd.queries.summary import outcome
from burnd.queries.view import View
from burnd.records.times import DAY_MS, to_iso

ROWS_VERSION = 3  # of the rows: raise it when the same state gives other rows, and every push sends all of them again
IsOfLedger = Callable[[int, str], bool]  # whether the ledger has an anchor at a position
_NOTHING = -1  # before every number
_EXAMINED_PER_ROW = 10  # turns that are examined for findings in the time of a row
_COLUMNS = len(ExportRow._fields)


class FeedCursor(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How far a client got. `since` is the pass before, `upto` the end of the current one, if there is one.

    `end` and `anchor` are of the ledger, `classes` and `prices` are the number of classes of turns and a hash of their
    prices. `session` and `turn` are the last ones of the page before. `last` is the highest `seq` so far, `shift` is
    added to numbers of this index to exceed that, and `first` is the first `seq` of a reset.
    """

    rows: int = ROWS_VERSION
    feed: str
    end: int = 0
    anchor: str = ""
    classes: int = 0
    prices: str = ""
    since: int = _NOTHING
    upto: int = _NOTHING
    session: int = 0
    turn: int = 0
    last: int = 0
    shift: int = 0
    first: int = 0


class _Page(NamedTuple):
    """Rows of a page, and the position after it; None at the end of the pass.

    `families` has the members of the families of those sessions that no other one started, by the ids of these.
    """

    turns: list[int]
    sessions: list[int]
    causes: list[dict[str, Any]]
    families: dict[str, list[int]]
    position: tuple[int, int] | None


def changes(view: View, ledger: Path, params: ChangesParams, is_of_ledger: IsOfLedger) -> dict[str, Any]:
    meta: dict[str, str] = dict(view.rows("SELECT key, value FROM meta"))
    every_class = classes_of(view)
    counter, base = int(meta["changes"]), int(meta["feed_base"])
    before = _decoded(params.cursor)
    if before is None or params.restart or not _is_current(view, before, meta, every_class, is_of_ledger):
        # A reset that crashed before its cursor was stored must not lend its numbers to rows with other prices, so
        # numbers follow the time; nor may an index in use again, or a clock that was set back, repeat lower ones.
        last = before.last if before is not None else 0
        shift = max(0, last + 1 - base - counter, view.now * 1000 - base - counter)
        before = FeedCursor(feed=meta["feed"], shift=shift, first=base + counter + shift)
    is_reset = before.first > 0
    ((left,),) = view.rows("SELECT count(*) FROM changed_sessions WHERE seq > ?", (before.since,))
    answer: dict[str, Any] = {
        "seq": base + counter + before.shift,
        "reset": is_reset,
        "firstSeq": before.first,
        "priceDate": view.prices.newest,
        "left": left,
        **{name: [] for name in ("turns", "sessions", "causes", "findings", "gone")},
    }
    is_behind = is_reset or before.upto != _NOTHING or left > 0 or bool(_gone(view, before))
    if params.limit == 0 or not is_behind:
        return {"cursor": _encoded(before), "complete": not is_behind, "more": is_behind, **answer}
    cursor = before
    if before.upto == _NOTHING:
        cursor = _next_pass(view, before, meta, every_class)
        answer["gone"] = [] if is_reset else _gone(view, before)
    page = _page(view, cursor, params.limit, every_class)
    turns, empty = _turns(view, page.turns)
    answer["turns"] = turns
    answer["gone"] += [] if is_reset else empty
    answer["causes"] = page.causes
    answer["findings"] = _findings(view, ledger, page.families)
    sets = {f"{name}Seq": {row["sessionId"] for row in answer[name]} for name in ("causes", "findings")}
    answer["sessions"] = _sessions(view, page.sessions, sets, answer["seq"])
    if not is_reset:
        _add_former_projects(view, answer)
    cursor.last = answer["seq"]
    is_complete = page.position is None
    more = not is_complete or counter > cursor.upto
    if page.position is not None:
        cursor.session, cursor.turn = page.position
    else:
        cursor.since, cursor.upto, cursor.first = cursor.upto, _NOTHING, 0
        cursor.session = cursor.turn = 0
    return {"cursor": _encoded(cursor), "complete": is_complete, "more": more, **answer}


def _decoded(text: str | None) -> FeedCursor | None:
    """The cursor; None if it is missing, or of another release."""
    try:
        return None if text is None else msgspec.json.decode(text, type=FeedCursor)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def _encoded(cursor: FeedCursor) -> str:
    return msgspec.json.encode(cursor).decode()


def _is_current(
    view: View, cursor: FeedCursor, meta: dict[str, str], every_class: TurnClasses, is_of_ledger: IsOfLedger
) -> bool:
    return (
        cursor.rows == ROWS_VERSION
        and cursor.feed == meta["feed"]
        and max(cursor.since, cursor.upto) <= int(meta["changes"])
        and is_of_ledger(cursor.end, cursor.anchor)
        and cursor.prices == _digest(view, every_class, cursor.classes)
    )


def _next_pass(view: View, cursor: FeedCursor, meta: dict[str, str], every_class: TurnClasses) -> FeedCursor:
    classes = max(every_class, default=0)
    return msgspec.structs.replace(
        cursor,
        upto=int(meta["changes"]),
        end=int(meta.get("ledger_end", 0)),
        anchor=meta.get("ledger_anchor", ""),
        classes=classes,
        prices=_digest(view, every_class, classes),
    )


def _digest(view: View, every_class: TurnClasses, classes: int) -> str:
    """A hash of the rules of findings, and of the prices and names of the first classes.

    New classes are of turns that are sent anyway.
    """
    digest = hashlib.blake2b(sizes_of(view.prices).encode(), digest_size=8)
    for one in (every_class[number] for number in sorted(every_class) if number <= classes):
        digest.update(repr((one.id, one.model, one.provider, one.price, one.own_rates, one.search_units)).encode())
    return digest.hexdigest()


def _page(view: View, cursor: FeedCursor, limit: int, every_class: TurnClasses) -> _Page:
    """Collects changed turns session by session. A session follows its last turn, with its causes and findings."""
    turns: list[int] = []
    sessions: list[int] = []
    causes: list[dict[str, Any]] = []
    families: dict[str, list[int]] = {}
    after, examined = cursor.turn, 0
    changed = view.db.execute(_CHANGED, (cursor.since, cursor.session))
    for session, every in changed:
        since = _NOTHING if every > cursor.since else cursor.since
        room = limit - len(turns) - len(causes) - examined // _EXAMINED_PER_ROW
        if room <= 0:
            # Sessions without turns of their own are done with the last one.
            return _Page(turns, sessions, causes, families, (session, 0))
        own = [
            row[0] for row in view.rows(_TURNS_OF, (session, since, after if session == cursor.session else 0, room))
        ]
        turns += own
        if len(own) == room:
            return _Page(turns, sessions, causes, families, (session, own[-1]))
        sessions.append(session)
        causes += _causes(view, session, every_class)
        if family := view.rows(_FAMILY, (session,)):
            families[family[0][1]] = [member for member, _, _ in family]
            examined += sum(turns for _, _, turns in family)
    return _Page(turns, sessions, causes, families, None)


def _turns(view: View, ids: list[int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Turns with their tags, and those that used nothing, which are no rows."""
    rows = sorted(view.keyed(_ROWS, [(one,) for one in ids]))
    tags = tags_of(view.keyed, [(row[4], row[5]) for row in rows])
    turns, empty = [], []
    for row in rows:
        turn = ExportRow(*row[:_COLUMNS])
        rev, request_id, version = row[_COLUMNS:]
        if turn.quality == "empty":
            place = {"project": turn.project, "projectKey": turn.project_key}
            empty.append({"source": turn.source, "messageId": turn.message_id, "formerProjects": [place]})
        else:
            answer = turn_answer(turn, tags.get((turn.source, turn.message_id), {}), view.prices)
            own = {"rev": rev, "version": version, "requestId": request_id}
            turns.append({**answer, **own, **_shown(view, turn.model, turn.provider)})
    return turns, empty


def _gone(view: View, cursor: FeedCursor) -> list[dict[str, Any]]:
    rows = view.rows(_GONE, (cursor.since,))
    return [{"source": source, "messageId": message_id} for source, message_id in rows]


def _add_former_projects(view: View, answer: dict[str, Any]) -> None:
    """Adds to turns that moved or are gone the projects that they had, and to sessions those of their turns."""
    projects: defaultdict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for source, message_id, session_id, project, key in view.rows(_FORMER):
        for name in ((source, message_id), (session_id,)):
            projects[name].append({"project": project, "projectKey": key})
    for row in (*answer["turns"], *answer["gone"]) if projects else ():
        if found := projects.get((row["source"], row["messageId"])):
            row["formerProjects"] = [*row.get("formerProjects", ()), *found]
    for row in answer["sessions"] if projects else ():
        if found := projects.get((row["sessionId"],)):
            row["formerProjects"] = found


def _sessions(view: View, ids: list[int], sets: dict[str, set[str]], seq: int) -> list[dict[str, Any]]:
    """Sessions; `sets` has those with causes and with findings in this page, by the names of their fields.

    The outcome is that of the last turn. One that used nothing is not sent, so the last one that is sent stands for it.
    """
    rows = []
    for session_id, source, parent, project, key, agent, *times, erased, stop, event, quality, last in sorted(
        view.keyed(_SESSIONS, [(one,) for one in ids])
    ):
        created_at, updated_at = times
        ends = {may: outcome(stop, event, quality=quality, may_go_on=may) if last else None for may in (False, True)}
        rows.append(
            {
                "sessionId": session_id,
                "source": source,
                "parentSessionId": parent,
                "project": project,
                "projectKey": key,
                "agent": agent,
                "createdAt": None if created_at is None else to_iso(created_at),
                "updatedAt": None if updated_at is None else to_iso(updated_at),
                "lastMessageId": last,
                "outcome": ends[False],
                "mayGoOn": ends[True] != ends[False],
                "erased": bool(erased),
                **{name: seq if session_id in some else 0 for name, some in sets.items()},
            }
        )
    return rows


def _causes(view: View, session: int, every_class: TurnClasses) -> list[dict[str, Any]]:
    """The sums of a session by day, cause, model and project, each with its number in this order."""
    sums: dict[tuple[str, ...], CauseSum] = {}
    searches: dict[tuple[str, ...], int] = {}
    width = len(Sums._fields)
    for row in view.rows(_CAUSES, (session,)):
        day, class_, *key = row[:-width]
        counts = row[-width:]
        names = (to_iso(day * DAY_MS - SHIFT_MS)[:10], *(name or "" for name in key))
        sums.setdefault(names, CauseSum()).add(every_class[class_], counts)
        searches[names] = searches.get(names, 0) + counts[6]
    rows = []
    for n, names in enumerate(sorted(sums)):
        day, kind, tool, target, agent, model, provider, project, project_key, source, session_id = names
        one = sums[names]
        rows.append(
            {
                "sessionId": session_id,
                "source": source,
                "n": n,
                "day": day,
                "kind": kind,
                "tool": tool or None,
                "target": target or None,
                "agent": agent or None,
                "model": model,
                "provider": provider or None,
                **_shown(view, model, provider or None),
                "project": project or None,
                "projectKey": project_key or None,
                "usage": usage(one.tokens),
                "searches": searches[names],
                "entered": one.entered,
                "calls": one.calls,
                "errors": one.errors,
                "costUsd": one.cost_usd,
            }
        )
    return rows


def _findings(view: View, ledger: Path, families: dict[str, list[int]]) -> list[dict[str, Any]]:
    """The findings of families, each with its number in its family, as `waste` finds them without filters.

    Sessions of which the prefix is larger than usual are missing: what is usual depends on all other sessions.
    """
    members = [member for family in families.values() for member in family]
    rails: defaultdict[int, list[RailEntries]] = defaultdict(list)
    for rail in load(view.db, ledger, members):
        rails[rail.session].append(rail)
    about = {facts[0]: facts[1:] for facts in view.keyed(_SESSIONS, [(member,) for member in members])}
    thresholds, pricer = view.prices.thresholds(), Pricer(view.prices)
    rows = []
    for root, family in families.items():
        explained = [(explain(rail.entries, thresholds), rail.turns) for member in family for rail in rails[member]]
        for n, finding in enumerate(one for one in bounded(all_findings(explained)) if one.tokens):
            source, _, project, key, *_ = about[finding.sessions[0]]
            cost, evidence = pricer.of(finding.tokens), finding.evidence
            rows.append(
                {
                    "sessionId": root,
                    "source": source,
                    "n": n,
                    "kind": finding.kind,
                    "tool": evidence.tool,
                    "target": evidence.target,
                    "reason": evidence.reason,
                    "project": project,
                    "projectKey": key,
                    "count": evidence.count,
                    "tokens": sum(cost.tokens[:-1]),
                    "costUsd": cost.usd,
                }
            )
    return rows


def _shown(view: View, model: str, provider: str | None) -> dict[str, str | None]:
    return {
        "modelName": shown_model(view.prices, model, provider),
        "providerName": shown_provider(view.prices, model, provider),
    }


_CHANGED = "SELECT session, every FROM changed_sessions WHERE seq > ? AND session >= ? ORDER BY session"
_TURNS_OF = "SELECT id FROM turns WHERE session = ? AND seq > ? AND id > ? ORDER BY id LIMIT ?"
_ROWS = f"""
WITH w(id) AS ({{keys}})
SELECT {TURN_COLUMNS}, x.rev, x.request_id, v.name FROM w CROSS JOIN turns x ON x.id = w.id {TURN_NAMES}
LEFT JOIN names v ON v.id = x.version
"""
_GONE = """
SELECT n.name, g.message_id FROM gone_turns g CROSS JOIN names n ON n.id = g.source WHERE g.seq > ?
  AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.source = g.source AND t.message_id = g.message_id)
ORDER BY 1, 2
"""
_FORMER = """
SELECT n.name, f.message_id, coalesce(s.session_id, ''), p.name, k.name
FROM former_projects f CROSS JOIN names n ON n.id = f.source
LEFT JOIN turns t ON t.source = f.source AND t.message_id = f.message_id LEFT JOIN sessions s ON s.id = t.session
LEFT JOIN names p ON p.id = f.project LEFT JOIN names k ON k.id = f.project_key
"""
_SESSIONS = """
WITH w(id) AS ({keys})
SELECT s.session_id, n.name, s.parent_session_id, p.name, k.name, s.agent, s.created_at, s.updated_at,
  s.pruned_count > 0 OR s.erasures > 0, r.name, v.name, x.quality, (SELECT t.message_id FROM turns t
    WHERE t.session = s.id AND t.rail = x.rail AND t.turn_index <= x.turn_index AND t.quality <> 'empty'
    ORDER BY t.turn_index DESC, t.ts DESC, t.message_id LIMIT 1)
FROM w CROSS JOIN sessions s ON s.id = w.id LEFT JOIN names n ON n.id = s.source
LEFT JOIN names p ON p.id = s.project LEFT JOIN names k ON k.id = s.project_key
LEFT JOIN endings e ON e.session = s.id LEFT JOIN turns x ON x.id = e.turn
LEFT JOIN names r ON r.id = x.stop_reason LEFT JOIN names v ON v.id = e.event
"""
# Nothing for a session that another one started, whose family has its findings.
_FAMILY = """
WITH RECURSIVE family(id, session_id) AS (
  SELECT s.id, s.session_id FROM sessions s WHERE s.id = ?
    AND NOT EXISTS (SELECT 1 FROM sessions p WHERE p.session_id = s.parent_session_id)
  UNION SELECT s.id, s.session_id FROM family f CROSS JOIN sessions s ON s.parent_session_id = f.session_id)
SELECT id, session_id, (SELECT count(*) FROM turns t WHERE t.session = family.id) FROM family
"""
_LEVELS = ",".join(map(str, (*PAID_LEVELS, MISS)))
_CAUSES = f"""
SELECT x.day, x.class, c.kind, t.name, g.name, a.name, m.name, p.name, pr.name, k.name, src.name, s.session_id,
       {", ".join(f"x.{name}" for name in Sums._fields)}
FROM (SELECT w.session, w.bucket / {DAY} AS day, x.cause, w.class, w.place,
             {", ".join(f"sum(x.{name}) AS {name}" for name in Sums._fields)}
      FROM turn_groups w CROSS JOIN cause_sums x ON x.turn_group = w.id AND x.level IN ({_LEVELS})
      CROSS JOIN causes c ON c.id = x.cause AND c.level = x.level
      WHERE w.session = ? AND w.grain = {DAYS} GROUP BY 1, 2, 3, 4, 5) x
CROSS JOIN sessions s ON s.id = x.session CROSS JOIN causes c ON c.id = x.cause
CROSS JOIN classes y ON y.id = x.class CROSS JOIN names src ON src.id = y.source CROSS JOIN names m ON m.id = y.model
LEFT JOIN names p ON p.id = y.provider LEFT JOIN names t ON t.id = c.tool LEFT JOIN names g ON g.id = c.target
LEFT JOIN names a ON a.id = c.agent LEFT JOIN places l ON l.id = x.place
LEFT JOIN names pr ON pr.id = l.project LEFT JOIN names k ON k.id = l.project_key
"""
