"""The push engine: pages from the change feed in, batches for a target out, with retries and an exact cursor.

The cursor is stored in the target, never only at home, so a target that was emptied or restored is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time

from burnctl.errors import BurnctlError, Failed, NotRunning, UsageError
from burnctl.push.schema import KEYS, SCHEMA_VERSION, content_row, row_of, tombstone, usd
from burnctl.push.state import write_state
from burnctl.push.target import Batch, Refused, Totals, Unreachable
from burnd import protocol
from burnd.contract.reports import ChangesParams, ExportParams
from burnd.contract.sessions import MOST_RECORDS, ReadParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final, TypeVar

    from burnctl.client import Client
    from burnctl.push.schema import Row
    from burnctl.push.target import DayModel, Target

    T = TypeVar("T")

BATCH_ROWS: Final = 5_000
_PAGE: Final = 2000
_PAUSES_S: Final = (1, 2, 4, 8, 16, 30, 60)  # between tries; the last one again and again with --watch
_BATCH_CHARS: Final = 4_000_000  # of content
_SETS_OF_FEED: Final = ("causes", "findings")
_NO_STATE: Final = "{}"
_TOKENS: Final = ("input", "output", "reasoning", "cacheRead", "cacheCreate5m", "cacheCreate1h")


def target_of(url: str, credentials: str | None = None) -> Target:
    check_url(url)
    user, password = read_credentials(credentials)
    scheme, separator, _ = url.partition("://")
    if not separator or scheme in ("file", "s3"):
        from burnctl.push.segments import SegmentTarget

        return SegmentTarget(url)
    if scheme in ("clickhouse", "clickhouses"):
        from burnctl.push.clickhouse import ClickHouseTarget

        return ClickHouseTarget.at(url, user, password)
    if scheme in ("postgres", "postgresql"):
        from burnctl.push.postgres import PostgresTarget

        return PostgresTarget.at(url, user, password)
    raise UsageError(
        f"push: no target of the kind {scheme}://",
        "use a folder, s3://BUCKET/PREFIX, clickhouse://HOST/DATABASE or postgres://HOST/DATABASE",
    )


def check_url(url: str) -> None:
    """Raises UsageError if a URL is empty, malformed, or has a password: other users see command lines."""
    from urllib.parse import urlsplit

    if not url.strip():
        raise UsageError("push: the target is empty", "is a variable of your shell not set?")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"push: {url} is no URL: {error}", "write it as SCHEME://HOST:PORT/DATABASE") from None
    if parts.password is not None:
        raise UsageError(
            "push: the URL has a password, which other users of this machine can see",
            "leave it out and set BURND_PUSH_PASSWORD, or use --credentials FILE",
        )


def read_credentials(path: str | None) -> tuple[str | None, str | None]:
    """User and password from a file with lines `user = ...` and `password = ...`, else from the environment."""
    environment = os.environ.get("BURND_PUSH_USER"), os.environ.get("BURND_PUSH_PASSWORD")
    if path is None:
        return environment
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise BurnctlError(f"{path}: other users can read this file", f"run: chmod 600 {path}")
            lines = [line.partition("=") for line in file if line.strip() and not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise BurnctlError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    values = {name.strip(): value.strip() for name, _, value in lines}
    return values.get("user") or environment[0], values.get("password") or environment[1]


class Labels:
    """The names and flags of a push that change its rows."""

    def __init__(self, machine: str, user: str, without: Iterable[str] = (), *, content: bool = False) -> None:
        self.machine, self.user, self.content = machine, user, content
        self.without = tuple(sorted({one.rstrip("/") for one in without}))

    @property
    def digest(self) -> str:
        """Changes when every row has to be sent again."""
        facts = [self.machine, self.user, self.without, SCHEMA_VERSION, self.content]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def leaves_out(self, row: dict[str, Any]) -> bool:
        """Whether the row is of a project that is left out: by folder, remote, or the end of one."""
        folder, key = row.get("project") or "", row.get("projectKey") or ""
        for one in self.without:
            is_it = one in (folder, key) or folder.startswith(f"{one}/") or folder.endswith(f"/{one}")
            if is_it or key.endswith(f"/{one}"):
                return True
        return False

    def was_sent(self, row: dict[str, Any]) -> bool:
        """Whether the target may have a row that is gone or left out. The ids of other rows are not sent."""
        former = row.get("formerProjects", ())
        return not self.without or any(not self.leaves_out(project) for project in former)


class Push:
    """A push to one target. `report` is called with the number of rows after each batch."""

    def __init__(
        self,
        client: Client,
        target: Target,
        labels: Labels,
        *,
        report: Callable[[int], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
        tries: int = len(_PAUSES_S) + 1,
    ) -> None:
        self._client, self._target, self._labels = client, target, labels
        self._report, self._pause, self._tries = report, pause, tries
        self._limit = _PAGE
        self.feed: str | None = None  # cursor of the feed, as far as the target has it
        self.machine_id = ""
        self.rows = 0

    def open(self) -> None:
        machine_id = self._asked(limit=0)["machine"]
        if machine_id is None:
            raise BurnctlError(
                "this machine has no id yet, since its home cannot be written", "see burnctl status, or set machine.id"
            )
        self.machine_id = machine_id
        self._warn_of_unknown_projects()
        stored = self._tried(lambda: self._target.open(self.machine_id))
        state = _decoded(stored)
        self.feed = state.get("feed") or state.get("before")
        self._resetting = state.get("first", 0)
        self._restarts = stored is not None and state.get("labels") != self._labels.digest
        self._stored = stored if stored is not None else _NO_STATE

    def _warn_of_unknown_projects(self) -> None:
        """Warns of names that no project has: they may be misspelled."""
        for name in self._labels.without:
            try:
                hint = (
                    "" if self._client.ask(ExportParams, {"project": name, "limit": 1})["turns"] else "check its name"
                )
            except Failed as error:
                hint = error.hint or error.message
            if hint:
                print(f"burnctl: no project is {name}: nothing is left out for it; {hint}", file=sys.stderr)

    def once(self) -> int:
        """Sends everything that changed since the target's cursor. Returns the number of rows."""
        before = self.rows
        batch = _Rows(self._labels, self.machine_id)
        for answer in self._pages():
            if answer["reset"] and answer["firstSeq"] != self._resetting:
                self._resetting = answer["firstSeq"]
                if self._stored != _NO_STATE:
                    # If it crashes, the next push must start over, even if the cursor from before fits again by then:
                    # rows of this reset have higher numbers.
                    self._send(batch, json.dumps({"before": self.feed}), is_forced=True)
            if self._labels.content:
                self._add_content(batch, answer)
            batch.add(answer)
            self.feed = answer["cursor"]
            if answer["reset"] and answer["complete"]:
                # Until old rows are deleted, the target's cursor stays where it is, before or within the reset.
                self._send(batch, self._stored)
                first = answer["firstSeq"]
                self._tried(lambda: self._target.finish_reset(self.machine_id, first))  # noqa: B023 - called at once
                self._resetting = 0
                self._send(batch, self._state(), is_forced=True)
            elif batch.size >= BATCH_ROWS or not answer["more"]:
                self._send(batch, self._state())
        return self.rows - before

    def _pages(self) -> Iterator[dict[str, Any]]:
        """The pages of the feed. The daemon prepares the next one while this one is sent."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            page = pool.submit(self._asked, cursor=self.feed, limit=self._limit, restart=self._restarts)
            while True:
                answer = page.result()
                self._restarts = False
                if answer["machine"] != self.machine_id:
                    raise BurnctlError("this machine got another id", "start the push again")
                if answer["more"]:
                    page = pool.submit(self._asked, cursor=answer["cursor"], limit=self._limit)
                yield answer
                if not answer["more"]:
                    return

    def _add_content(self, batch: _Rows, answer: dict[str, Any]) -> None:
        """Adds the content of the page's sessions, and sends what is large before the sessions that name it.

        Erased content and that of sessions which moved to a project that is left out is erased in the target.
        """
        labels = self._labels
        private = {
            row["sessionId"]
            for table in ("turns", "sessions", "causes")
            for row in answer[table]
            if labels.leaves_out(row)
        }
        erased = [
            session["sessionId"]
            for session in answer["sessions"]
            if session.get("erased") or (session["sessionId"] in private and labels.was_sent(session))
        ]
        if erased and not answer["reset"]:
            self._tried(lambda: self._target.erase(self.machine_id, erased, answer["seq"]))
        for session in answer["sessions"]:
            if session["sessionId"] in private:
                continue
            for n, record in enumerate(self._records(session["sessionId"])):
                session["contentSeq"] = answer["seq"]
                batch.add_content(record, n, answer)
                if batch.text_size >= _BATCH_CHARS:
                    self._send(batch, self._stored)

    def _records(self, session_id: str) -> Iterator[dict[str, Any]]:
        offset: int | None = 0
        while offset is not None:
            try:
                page = self._client.ask(ReadParams, {"session": session_id, "offset": offset, "limit": MOST_RECORDS})
            except Failed as error:
                if error.code != protocol.NOT_FOUND:
                    raise
                return
            yield from page["records"]
            offset = page["next"]

    def _state(self) -> str:
        state = {"feed": self.feed, "labels": self._labels.digest}
        return json.dumps(state | {"first": self._resetting} if self._resetting else state)

    def _send(self, rows: _Rows, state: str, *, is_forced: bool = False) -> None:
        if not rows.size and not is_forced:
            return
        batch = Batch(self.machine_id, rows.take(), state, rows.seq)
        self._tried(lambda: self._target.send(batch))
        self._stored = state
        self.rows += batch.size
        self._report(self.rows)

    def _asked(self, **params: Any) -> dict[str, Any]:
        """Asks for a page of the feed; halves it while it is too large."""
        while True:
            try:
                return self._client.ask(ChangesParams, params)
            except Failed as error:
                if error.code != protocol.TOO_LARGE or self._limit == 1:
                    raise
                self._limit = params["limit"] = max(1, self._limit // 2)

    def _tried(self, call: Callable[[], T]) -> T:
        """Calls a target, and retries while it is unreachable."""
        for n in range(self._tries):
            try:
                return call()
            except Unreachable as error:
                if n + 1 == self._tries:
                    raise
                print(f"burnctl: {error}; trying again", file=sys.stderr)
                self._pause(pause_s(n))
        raise AssertionError

    def is_behind(self) -> bool:
        return bool(self._asked(cursor=self.feed, limit=0)["more"])

    @property
    def has_other_labels(self) -> bool:
        """Whether the last push to the target had other flags."""
        return self._restarts

    def local_totals(self) -> dict[DayModel, Totals]:
        """The totals of this machine, from its export."""
        totals: dict[DayModel, Totals] = {}
        after: str | None = None
        while True:
            page = self._client.ask(ExportParams, {"limit": _PAGE, "after": after})
            for turn in page["turns"]:
                if not self._labels.leaves_out(turn):
                    _add(totals, turn)
            if (after := page["next"]) is None:
                return totals

    def differences(self) -> list[tuple[DayModel, Totals, Totals]]:
        """Days and models whose totals differ: (day and model, here, there)."""
        here, there = self.local_totals(), self._tried(lambda: self._target.totals(self.machine_id))
        none = Totals()
        return [
            (key, here.get(key, none), there.get(key, none))
            for key in sorted(here.keys() | there.keys())
            if here.get(key, none) != there.get(key, none)
        ]


def pause_s(tries: int) -> float:
    """The pause after a failure, with jitter, so that a fleet does not come back all at once."""
    return _PAUSES_S[min(tries, len(_PAUSES_S) - 1)] * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret


class _Rows:
    """Rows for the next batch, each key once: a later page may have a newer one."""

    def __init__(self, labels: Labels, machine_id: str) -> None:
        self._labels, self._machine_id = labels, machine_id
        self.seq = self.text_size = 0
        self._tables: dict[str, dict[tuple[Any, ...], Row]] = {}
        self._sets: dict[str, dict[str, list[Row]]] = {table: {} for table in _SETS_OF_FEED}  # rows by session

    @property
    def size(self) -> int:
        sets = (rows for by_session in self._sets.values() for rows in by_session.values())
        return sum(map(len, (*self._tables.values(), *sets)))

    def _common(self, answer: dict[str, Any]) -> Row:
        self.seq = max(self.seq, answer["seq"])
        return {
            "machine_id": self._machine_id,
            "machine": self._labels.machine,
            "user": self._labels.user,
            "seq": answer["seq"],
            "deleted": False,
            "schema": SCHEMA_VERSION,
            "price_date": answer["priceDate"],
        }

    def add(self, answer: dict[str, Any]) -> None:
        labels, common = self._labels, self._common(answer)
        for turn in (*answer["turns"], *answer["gone"]):
            if "sessionId" in turn and not labels.leaves_out(turn):
                self._put("turns", row_of("turns", turn, common))
            elif labels.was_sent(turn):
                key = {"source": turn["source"], "messageId": turn["messageId"]}
                self._put("turns", tombstone("turns", key, common))
        needed = self._add_sets(answer, common)
        for session in answer["sessions"]:
            if not labels.leaves_out(session):
                self._put("sessions", row_of("sessions", session, common))
            elif session["sessionId"] in needed:
                unnamed = {**session, "project": None, "projectKey": None}
                self._put("sessions", row_of("sessions", unnamed, common))
            elif labels.was_sent(session):
                self._put("sessions", tombstone("sessions", {"sessionId": session["sessionId"]}, common))

    def _add_sets(self, answer: dict[str, Any], common: Row) -> set[str]:
        """Adds rows that replace those of their sessions. Returns the sessions that have some."""
        needed = set()
        for table, by_session in self._sets.items():
            for session in answer["sessions"]:
                by_session.pop(session["sessionId"], None)
            for one in answer[table]:
                if not self._labels.leaves_out(one):
                    needed.add(one["sessionId"])
                    by_session.setdefault(one["sessionId"], []).append(row_of(table, one, common))
        return needed

    def add_content(self, record: dict[str, Any], n: int, answer: dict[str, Any]) -> None:
        row = content_row(record, n, self._common(answer))
        self._put("content", row)
        self.text_size += len(row["text"] or "")

    def _put(self, table: str, row: Row) -> None:
        self._tables.setdefault(table, {})[tuple(row[name] for name in KEYS[table])] = row

    def take(self) -> dict[str, list[Row]]:
        """The rows by table; those of sessions before the sessions that name them."""
        tables = {
            table: [row for rows in by_session.values() for row in rows] for table, by_session in self._sets.items()
        }
        tables |= {table: list(rows.values()) for table, rows in self._tables.items()}
        self._tables, self._sets, self.text_size = {}, {table: {} for table in _SETS_OF_FEED}, 0
        return {table: rows for table, rows in tables.items() if rows}


def _add(totals: dict[DayModel, Totals], turn: dict[str, Any]) -> None:
    one = totals.setdefault((turn["ts"][:10], turn["model"]), Totals())
    one.turns += 1
    one.tokens = tuple(a + turn["usage"][name] for a, name in zip(one.tokens, _TOKENS, strict=True))
    if (cost := usd(turn["costUsd"])) is not None:
        one.cost = cost if one.cost is None else one.cost + cost


def _decoded(stored: str | None) -> dict[str, Any]:
    """The stored state; empty if it is damaged, so that everything is sent again."""
    try:
        state = json.loads(stored) if stored else {}
    except ValueError:
        return {}
    return state if isinstance(state, dict) else {}


def watch(push: Push, url: str, every_s: float, *, pause: Callable[[float], None] = time.sleep) -> None:
    """Pushes periodically, through outages of the daemon and the target, until it is refused."""
    failures = 0
    is_open = False
    while True:
        try:
            if not is_open:
                push.open()
                is_open = True
            push.once()
            write_state(url, push.feed)
            failures = 0
            pause(every_s)
        except Refused as error:
            write_state(url, push.feed, error=error.message)
            raise
        except (Unreachable, NotRunning, Failed) as error:
            if isinstance(error, Failed) and error.is_of_another_release:
                raise
            write_state(url, push.feed, error=error.message)
            print(f"burnctl: {error}; trying again", file=sys.stderr)
            is_open = False  # what is stored there decides how to go on
            pause(pause_s(failures))
            failures += 1
