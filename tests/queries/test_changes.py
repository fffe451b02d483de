"""A replica that follows the change feed equals a full export, in any history and with any page size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnd.attribution import segments
from burnd.attribution.explainer import Explainer
from burnd.contract.reports import ChangesParams, ExportParams
from burnd.index.change import FileChange
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.pricing.pricefile import UserLists
from burnd.queries.changes import changes
from burnd.queries.export import export
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Session, Turn, Usage
from tests.attribution import histories as worlds
from tests.conftest import Opened
from tests.make import at, examples, stamp, turn
from tests.queries.looking import PRICES, look
from tests.queries.wasteful import in_session, wasteful_session
from tests.queries.worlds import live

NOW = at(100_000)
TABLES = ("turns", "sessions", "causes", "findings")
OF_CHANGES = ("formerProjects",)  # about the change, not of the row
SETS = {"causes": "causesSeq", "findings": "findingsSeq"}


async def page(pipeline: Pipeline, prices: PriceTable = PRICES, **params: Any) -> dict[str, Any]:
    asked = ChangesParams(**params)
    return await look(
        pipeline, lambda view: changes(view, pipeline.home.ledger, asked, pipeline.journal.has_anchor), NOW, prices
    )


class Replica:
    """Follows the feed as a target does: by key and `seq`, page by page."""

    def __init__(self) -> None:
        self.cursor: str | None = None
        self.rows: dict[tuple[str, ...], tuple[int, dict[str, Any] | None]] = {}
        self.received = 0

    async def take(self, pipeline: Pipeline, limit: int, prices: PriceTable = PRICES, **params: Any) -> bool:
        """Takes one page; returns whether there are more."""
        answer = await page(pipeline, prices, cursor=self.cursor, limit=limit, **params)
        self.put(answer)
        self.cursor = answer["cursor"]
        return bool(answer["more"])

    def put(self, answer: dict[str, Any]) -> None:
        seq = answer["seq"]
        for one in answer["turns"]:
            self._put(("turns", one["source"], one["messageId"]), seq, one)
        for one in answer["gone"]:
            self._put(("turns", one["source"], one["messageId"]), seq, None)
        for session in answer["sessions"]:
            self._put(("sessions", session["sessionId"]), seq, session)
        for table in SETS:
            for one in answer[table]:
                self._put((table, one["sessionId"], str(one["n"])), seq, one)
        if answer["reset"] and answer["complete"]:
            self.rows = {key: row for key, row in self.rows.items() if row[0] >= answer["firstSeq"]}

    def _put(self, key: tuple[str, ...], seq: int, row: dict[str, Any] | None) -> None:
        row = row and {name: value for name, value in row.items() if name not in OF_CHANGES}
        before = self.rows.get(key, (0, None))
        assert before[0] <= seq
        assert before[0] < seq or before[1] == row, "one number has two states"
        self.rows[key] = (seq, row)
        self.received += 1

    async def drain(self, pipeline: Pipeline, limit: int = 1000, prices: PriceTable = PRICES) -> None:
        while await self.take(pipeline, limit, prices):
            pass

    def table(self, name: str) -> dict[tuple[str, ...], dict[str, Any]]:
        """The rows that count, without numbers."""
        rows = {key: row for key, (_, row) in self.rows.items() if key[0] == name and row is not None}
        if name in SETS:
            wanted = {key[1]: row[SETS[name]] for key, (_, row) in self.rows.items() if key[0] == "sessions" and row}
            rows = {key: row for key, row in rows.items() if self.rows[key][0] == wanted[key[1]]}
        return {key: {k: v for k, v in row.items() if k not in SETS.values()} for key, row in rows.items()}


async def equals_a_full_export(replica: Replica, pipeline: Pipeline, prices: PriceTable = PRICES) -> None:
    fresh = Replica()
    await fresh.drain(pipeline, prices=prices)
    for name in TABLES:
        assert replica.table(name) == fresh.table(name)
    shown = await look(pipeline, lambda view: export(view, ExportParams(limit=5000)), NOW, prices)
    own = ("rev", "version", "requestId", "modelName", "providerName")
    turns = [{k: v for k, v in row.items() if k not in own} for row in replica.table("turns").values()]
    order = ("ts", "sessionId", "railId", "turnIndex", "source", "messageId")
    assert sorted(turns, key=lambda row: [row[k] for k in order]) == shown["turns"]


DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("live"), worlds.deeds),
        st.tuples(st.just("live"), worlds.deeds),
        st.tuples(st.just("live"), worlds.deeds),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(1, 40)),
        st.tuples(st.sampled_from(("explain", "rebuild", "restart", "price", "again")), st.just(0)),
    ),
    max_size=12,
)


@settings(worlds.ON_DISK, max_examples=examples(20))
@given(DEEDS, st.integers(1, 9))
async def test_a_replica_equals_a_full_export(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[tuple[str, Any]], limit: int
) -> None:
    """Late logs, revisions, late stamps, ranges, copies that change hands, causes, another index, other prices."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    replica, prices = Replica(), PRICES
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(segments, "LENGTH", 3)
    try:
        await pipeline.commit(Batch(files=[FileChange("claude-code", "/log", b"here")]))
        for deed, what in deeds:
            if deed == "live":
                await live(pipeline, what)
            elif deed == "take":
                await replica.take(pipeline, what, prices)
            elif deed == "again":
                await replica.take(pipeline, limit, prices, restart=True)
            elif deed == "explain":
                await Explainer(pipeline).catch_up()
            elif deed == "rebuild":
                await pipeline.rebuild_index()
            elif deed == "restart":
                pipeline = await opener()
            else:
                prices = OTHER if prices is PRICES else PRICES
                await pipeline.adopt_prices(prices)
            if deed in ("live", "explain"):
                await replica.drain(pipeline, limit, prices)
                await equals_a_full_export(replica, pipeline, prices)
        await replica.drain(pipeline, limit, prices)
        await equals_a_full_export(replica, pipeline, prices)
        received = replica.received
        await replica.drain(pipeline, limit, prices)
        assert replica.received == received, "a repeat sends nothing"
    finally:
        monkeypatch.undo()
        await opener.close()


def _other_prices() -> PriceTable:
    card: Any = {"input": "7", "output": "9"}
    return PRICES.under(UserLists({"house": {"house-1": card}, "anthropic": {"claude-sonnet-4-5": card}}, {}))


OTHER = _other_prices()


async def test_one_more_turn_sends_one_turn(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn(f"m{n}", turn_index=n) for n in range(30)]))
    replica = Replica()
    await replica.drain(pipeline)
    await pipeline.commit(Batch(entries=[turn("m30", turn_index=30)]))
    answer = await page(pipeline, cursor=replica.cursor)
    assert [row["messageId"] for row in answer["turns"]] == ["m30"]
    assert (answer["reset"], answer["more"], answer["left"]) == (False, False, 1)


async def test_a_stamp_sends_every_turn_of_its_session_and_of_those_that_it_started(opened: Opened) -> None:
    pipeline = await opened()
    kid = Session(session_id="kid", source="opencode", parent_session_id="s1")
    turns = [turn("a"), turn("b", session_id="kid"), turn("c", session_id="s2")]
    await pipeline.commit(Batch(entries=[kid, *turns]))
    replica = Replica()
    await replica.drain(pipeline)
    await pipeline.commit(Batch(entries=[stamp(1, persona="senior"), stamp(2, message="c", step="x")]))
    answer = await page(pipeline, cursor=replica.cursor)
    tags = {row["messageId"]: row["tags"] for row in answer["turns"]}
    assert tags == {"a": {"persona": "senior"}, "b": {"persona": "senior"}, "c": {"step": "x"}}


async def test_a_turn_that_is_taken_back_is_gone_until_it_is_recorded_again(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("a"), turn("b", turn_index=1)]))
    replica = Replica()
    await replica.drain(pipeline)
    await pipeline.commit(Batch(entries=[turn("a", rev=2, copy_of="b")]))
    answer = await page(pipeline, cursor=replica.cursor)
    projects = [{"project": None, "projectKey": None}]
    assert answer["gone"] == [{"source": "claude-code", "messageId": "a", "formerProjects": projects}]
    await replica.drain(pipeline)
    await pipeline.commit(Batch(entries=[turn("a")]))
    await replica.drain(pipeline)
    await equals_a_full_export(replica, pipeline)


async def test_what_moved_or_is_gone_names_its_former_projects(opened: Opened) -> None:
    pipeline = await opened()
    names = ("moved", "gone", "same")
    await pipeline.commit(Batch(entries=[turn(name, turn_index=n, project="/a") for n, name in enumerate(names)]))
    replica = Replica()
    await replica.drain(pipeline)
    changed = [turn("moved", rev=2, project="/b"), turn("gone", turn_index=1, rev=2, project="/b", copy_of="x")]
    await pipeline.commit(
        Batch(entries=[*changed, turn("same", turn_index=2, rev=2, project="/a", activity="testing")])
    )
    answer = await page(pipeline, cursor=replica.cursor)
    rows = {row["messageId"]: row.get("formerProjects") for row in (*answer["turns"], *answer["gone"])}
    former = {"project": "/a", "projectKey": None}
    assert rows.pop("gone") == [former, {"project": "/b", "projectKey": None}]
    assert rows == {"moved": [former], "same": None}
    assert [row["formerProjects"] for row in answer["sessions"]] == [[former]]


async def test_how_a_session_ended(opened: Opened) -> None:
    """A last request that used nothing is not sent, so the one before it stands for the session."""
    pipeline = await opened()

    async def ending(*turns: Turn) -> tuple[str, str, bool]:
        await pipeline.commit(Batch(entries=list(turns)))
        (row,) = (await page(pipeline))["sessions"]
        return row["lastMessageId"], row["outcome"], row["mayGoOn"]

    assert await ending(turn("a", stop_reason="tool_use")) == ("a", "abandoned", True)
    assert await ending(turn("b", turn_index=1, stop_reason="end_turn")) == ("b", "completed", False)
    assert await ending(turn("c", turn_index=2, quality="empty", usage=Usage())) == ("b", "errored", True)


async def test_a_cursor_of_another_ledger_starts_over_with_higher_numbers(opened: Opened) -> None:
    """A home that was restored from a backup has the same index, and other lines at the end of its ledger."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("a")]))
    replica = Replica()
    await replica.drain(pipeline)
    first = await page(pipeline, cursor=replica.cursor)
    asked = ChangesParams(cursor=replica.cursor)
    other = await look(
        pipeline, lambda view: changes(view, pipeline.home.ledger, asked, lambda _end, _anchor: False), NOW
    )
    assert (first["reset"], other["reset"]) == (False, True)
    assert other["firstSeq"] > first["seq"]
    assert [row["messageId"] for row in other["turns"]] == ["a"]


async def test_a_reset_that_crashed_lends_its_number_to_no_other_row(opened: Opened) -> None:
    """Its rows are in the target, its cursor is not; then prices change, and all rows are other ones."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("a")]))
    replica = Replica()
    asked, has_anchor = ChangesParams(limit=1), pipeline.journal.has_anchor

    def restarted(view: View) -> dict[str, Any]:
        return changes(view, pipeline.home.ledger, asked, has_anchor)

    for now, prices in enumerate((PRICES, OTHER, PRICES)):
        replica.put(await look(pipeline, restarted, at(10**9 + now), prices))
    assert replica.received == 3


async def test_numbers_of_lost_transactions_are_not_given_again(opened: Opened) -> None:
    """After a power failure the index may lack its last transactions, which a push has seen."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("a")]))
    older = await pipeline.index.ask(lambda db: db.execute("SELECT value FROM meta WHERE key = 'changes'").fetchall())
    await pipeline.commit(Batch(entries=[turn("a", rev=2, activity="testing")]))
    replica = Replica()
    await replica.drain(pipeline)
    await pipeline.index.transact(lambda db: db.execute("UPDATE meta SET value = ? WHERE key = 'changes'", older[0]))
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("a", rev=3, activity="coding")]))
    await replica.drain(pipeline)
    await equals_a_full_export(replica, pipeline)


@pytest.mark.parametrize("cursor", ["", "x", "{}", '{"feed":"other"}', '{"feed":1}'])
async def test_an_invalid_cursor_starts_over(opened: Opened, cursor: str) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("a")]))
    answer = await page(pipeline, cursor=cursor)
    assert answer["reset"]
    assert len(answer["turns"]) == 1


async def test_counts_alone(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("a"), turn("b", session_id="s2")]))
    answer = await page(pipeline, limit=0)
    assert (answer["left"], answer["turns"], answer["more"]) == (2, [], True)


async def test_turns_of_a_long_session_come_in_pages_with_their_causes_at_the_end(opened: Opened) -> None:
    pipeline = await opened()
    made: list[Turn] = [turn(f"m{n}", turn_index=n) for n in range(10)]
    await pipeline.commit(Batch(entries=list(made)))
    await Explainer(pipeline).catch_up()
    first = await page(pipeline, limit=4)
    assert (len(first["turns"]), first["sessions"], first["causes"], first["more"]) == (4, [], [], True)
    second = await page(pipeline, limit=100, cursor=first["cursor"])
    (session,) = second["sessions"]
    assert len(second["turns"]) == 6
    assert second["causes"]
    assert session["causesSeq"] == second["seq"]
    paid = [row for row in second["causes"] if row["kind"] != "miss"]
    for name, tokens in (("input", 100), ("output", 200), ("cacheRead", 3000)):
        assert sum(row["usage"][name] for row in paid) == tokens


async def test_findings_follow_their_family(opened: Opened) -> None:
    """They come with the session that started the others, change with each of them, and go when another one did."""
    pipeline = await opened()
    replica = Replica()

    async def owners() -> dict[str, set[str]]:
        await replica.drain(pipeline)
        await equals_a_full_export(replica, pipeline)
        kinds: dict[str, set[str]] = {}
        for (_, session, _), row in replica.table("findings").items():
            kinds.setdefault(session, set()).add(row["kind"])
        return kinds

    await pipeline.commit(Batch(entries=in_session(wasteful_session(), "kid")))
    assert {"reread", "retry-loop", "rode-far"} <= (await owners())["kid"]
    found = [row for row in replica.table("findings").values() if row["kind"] == "retry-loop"]
    assert [(row["tool"], row["target"], row["count"]) for row in found] == [("Bash", "npm test", 4)]
    assert all(row["tokens"] > 0 and row["costUsd"] > 0 for row in found)

    await pipeline.commit(Batch(entries=[Session(session_id="kid", source="opencode", parent_session_id="top")]))
    assert (await owners()).keys() == {"kid"}, "its parent is not recorded yet"
    await pipeline.commit(Batch(entries=[turn("t1", session_id="top")]))
    assert (await owners()).keys() == {"top"}
    await pipeline.commit(Batch(entries=[Session(session_id="top", source="opencode", parent_session_id="first")]))
    await pipeline.commit(Batch(entries=[turn("f1", session_id="first")]))
    assert (await owners()).keys() == {"first"}

    taken = [one for one in in_session(wasteful_session(), "kid") if isinstance(one, Turn)]
    await pipeline.commit(Batch(entries=[turn(one.message_id, session_id="kid", rev=2, copy_of="f1") for one in taken]))
    assert await owners() == {}
