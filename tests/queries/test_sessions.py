"""Lists and reads sessions: facts, pages, limits, and notes on missing content."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec
import pytest

from burnd.content.recall import Recall
from burnd.contract.sessions import BLOCK_BYTES, ListParams, MessagesParams, MetaParams
from burnd.index.change import Change, FileChange, OpenTurn
from burnd.queries.messages import PAGE_BYTES, messages
from burnd.queries.sessions import list_sessions, meta
from burnd.queries.view import Missing, Mistaken, Refusal, View
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import File, Session
from tests.conftest import Opened
from tests.make import START_MS, at, text, tool_result, tool_use, turn
from tests.search.library import PRICES


async def listed(pipeline: Pipeline, **params: Any) -> dict[str, Any]:
    return await pipeline.index.ask(lambda db: list_sessions(View(db, PRICES, START_MS), ListParams(**params)))


async def known(pipeline: Pipeline, name: str) -> dict[str, Any]:
    return await pipeline.index.ask(lambda db: meta(View(db, PRICES, START_MS), MetaParams(id=name)))


async def read(pipeline: Pipeline, name: str, **params: Any) -> dict[str, Any]:
    recall = Recall(pipeline.home.content)
    try:
        asked = MessagesParams(id=name, **params)
        return await pipeline.index.ask(lambda db: messages(View(db, PRICES, START_MS), recall, asked))
    finally:
        recall.close()


def ids(answer: dict[str, Any]) -> list[str]:
    return [session["sessionId"] for session in answer["sessions"]]


async def filled(pipeline: Pipeline) -> None:
    for n, source in enumerate(["claude-code", "opencode", "claude-code"]):
        name, ts = f"session-{n}", at(n * 100)
        facts = {"session_id": name, "source": source, "project": f"/p/{n % 2}", "ts": ts}
        await pipeline.commit(
            Batch(
                entries=[turn(f"m{n}", **facts), Session(session_id=name, source=source, agent=f"agent-{n}")],
                content=[text(f"m{n}", f"words {n}", session_id=name, ts=ts)],
            )
        )


async def test_the_latest_come_first_and_pages_join(opened: Opened) -> None:
    """Page after page, every session is there once, those written last first."""
    pipeline = await opened()
    await filled(pipeline)
    whole = ids(await listed(pipeline))
    assert whole == ["session-2", "session-1", "session-0"]
    paged, token = [], None
    while True:
        page = await listed(pipeline, limit=1, next=token)
        paged += ids(page)
        token = page.get("next")
        if token is None:
            break
    assert paged == whole


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"source": "opencode"}, ["session-1"]),
        ({"source": "gemini-api"}, []),
        ({"project": "/p/0"}, ["session-2", "session-0"]),
        ({"agent": "agent-1"}, ["session-1"]),
        ({"since": at(50)}, ["session-2", "session-1"]),
        ({"until": at(150)}, ["session-1", "session-0"]),
        ({"since": at(50), "until": at(150)}, ["session-1"]),
        ({"limit": 10**9}, ["session-2", "session-1", "session-0"]),
        ({"limit": -1}, ["session-2"]),
    ],
)
async def test_filters_narrow_the_list(opened: Opened, filters: dict[str, Any], expected: list[str]) -> None:
    pipeline = await opened()
    await filled(pipeline)
    assert ids(await listed(pipeline, **filters)) == expected


async def test_an_unknown_source_is_an_error(opened: Opened) -> None:
    """An unknown source such as `claude` is an error, not an empty list."""
    pipeline = await opened()
    await filled(pipeline)
    with pytest.raises(Mistaken, match="unknown source 'claude'"):
        await listed(pipeline, source="claude")


async def test_a_row_says_what_is_known(opened: Opened) -> None:
    """Facts, times and message counts; costs on request; no text of messages."""
    pipeline = await opened()
    await filled(pipeline)
    row = (await listed(pipeline, costs=True, limit=1))["sessions"][0]
    assert row["messageCount"] == 1
    assert row["updatedAt"] == at(200)
    assert (row["turns"], row["costUsd"]) == (1, pytest.approx(0.0006))
    assert "costUsd" not in (await listed(pipeline))["sessions"][0]
    assert "words" not in repr(row)


async def test_a_long_summary_is_listed_briefly(opened: Opened) -> None:
    """A page of sessions stays small with long summaries; a single session has its summary in full."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[Session(session_id="s1", source="x", title="t", summary="word " * 2000)]))
    assert len((await listed(pipeline))["sessions"][0]["summary"]) == 501
    assert len((await known(pipeline, "s1"))["summary"]) == 10_000


async def test_summaries_of_other_sessions_are_no_session(opened: Opened) -> None:
    """A file that only held titles for other files' lines is not listed, and not found by its beginning."""
    pipeline = await opened()
    await filled(pipeline)
    await pipeline.commit(Batch(entries=[Session(session_id="leaf-only", source="claude-code")]))
    assert "leaf-only" not in ids(await listed(pipeline))
    with pytest.raises(Missing):
        await known(pipeline, "leaf")


async def test_a_session_is_found_by_its_beginning(opened: Opened) -> None:
    """By its id or a unique prefix; otherwise the answer lists longer prefixes."""
    pipeline = await opened()
    await filled(pipeline)
    assert (await known(pipeline, "session-1"))["sessionId"] == "session-1"
    assert (await known(pipeline, "session-2"))["rails"] == [{"railId": "main", "messages": 1}]
    with pytest.raises(Refusal, match="more than one") as several:
        await known(pipeline, "sess")
    assert "session-0, session-1" in several.value.hint
    for name in ("x", "session_1", "%"):
        with pytest.raises(Missing):
            await known(pipeline, name)
    with pytest.raises(Refusal):
        await known(pipeline, "")


async def test_a_page_costs_the_same_however_many_sessions_there_are(opened: Opened) -> None:
    """The latest are found by an index, first page and next: nothing is sorted."""
    pipeline = await opened()
    await filled(pipeline)

    def plans(db: sqlite3.Connection) -> list[str]:
        asked: list[str] = []
        db.set_trace_callback(asked.append)
        page = list_sessions(View(db, PRICES, START_MS), ListParams(limit=1))
        list_sessions(View(db, PRICES, START_MS), ListParams(limit=1, next=page["next"]))
        db.set_trace_callback(None)
        pages = [sql for sql in asked if "ORDER BY coalesce(s.updated_at" in sql]
        return [" ".join(step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {sql}")) for sql in pages]

    found = await pipeline.index.ask(plans)
    assert len(found) == 2
    for plan in found:
        assert "sessions_by_update" in plan
        assert "TEMP B-TREE FOR ORDER BY" not in plan


async def test_unique_prefixes_of_ids_are_suggested(opened: Opened) -> None:
    """By all sessions there are, not those that are listed: so what is printed can be typed back in."""
    pipeline = await opened()
    names = ["c0de0000-1", "c0de0000-2", "c0de", "c0de0000-21", "d", "\u00e9\u00e8", "\u00e9"]
    await pipeline.commit(Batch(content=[text("m1", "words", session_id=name) for name in names]))
    told = {row["sessionId"]: row["shortId"] for row in (await listed(pipeline))["sessions"]}
    assert {row["shortId"] for row in (await listed(pipeline, limit=1))["sessions"]} < set(told.values())
    assert told == {name: name for name in names}
    await pipeline.commit(Batch(content=[text("m1", "words", session_id="d-and-more-of-it")]))
    for row in (await listed(pipeline))["sessions"]:
        assert (await known(pipeline, row["shortId"]))["sessionId"] == row["sessionId"]
    assert (await listed(pipeline))["sessions"][0]["shortId"] in {"d-", *names}


@pytest.mark.parametrize("token", ["", "x", "1", ".s", "1e9.s", "99999999999999999999.s"])
async def test_a_strange_token_is_refused(opened: Opened, token: str) -> None:
    pipeline = await opened()
    with pytest.raises(Refusal):
        await listed(pipeline, next=token)


async def test_messages_are_given_back_as_they_were(opened: Opened) -> None:
    """Texts, calls, results and files, small or large, with what each turn cost."""
    pipeline = await opened()
    large = "much " * 5000
    await pipeline.commit(
        Batch(
            entries=[turn("a1")],
            content=[
                text("p1", "ask", role="user"),
                text("a1", large[:3000], kind="thinking"),
                tool_use("a1", {"file_path": "/x", "large": large[:2000]}, b=1),
                tool_result("r1", [{"type": "text", "text": "block"}]),
                text(
                    "f1",
                    "",
                    text=None,
                    role="user",
                    kind="file",
                    file=File(mime="image/png", name="x.png", data=b"\0" * 99),
                ),
            ],
        )
    )
    answer = await read(pipeline, "s1")
    assert (answer["total"], answer["retained"], answer["railId"]) == (4, True, "main")
    prompt, made, result, image = answer["messages"]
    assert prompt["blocks"] == [{"kind": "text", "text": "ask"}]
    assert made["blocks"][0]["text"] == large[:3000]
    assert made["blocks"][1]["toolUse"]["input"] == {"file_path": "/x", "large": large[:2000]}
    assert made["turn"]["costUsd"] == pytest.approx(0.0006)
    assert result["blocks"][0]["toolResult"]["content"] == [{"type": "text", "text": "block"}]
    assert result["blocks"][0]["toolResult"]["toolName"] == "Read"
    assert image["blocks"][0]["file"] == {"mime": "image/png", "name": "x.png", "bytes": 99}


async def test_a_page_is_bounded_whatever_is_asked(opened: Opened) -> None:
    """In messages and bytes; cuts are marked, and pages join without gaps."""
    pipeline = await opened()
    said = [text(f"m{i:03}", "äx" * 40_000, ts=at(i)) for i in range(30)]
    said += [text("z", "small", n=n, ts=at(99)) for n in range(1000)]
    await pipeline.commit(Batch(content=said))
    found, offset = [], 0
    while True:
        page = await read(pipeline, "s1", offset=offset, limit=10**9, block_bytes=10**9)
        assert len(msgspec.json.encode(page)) < PAGE_BYTES + 300_000
        found += page["messages"]
        if "next" not in page:
            break
        offset = page["next"]
    assert [message["msgIdx"] for message in found] == list(range(31))
    block = found[0]["blocks"][0]
    assert block["truncated"]
    assert len(block["text"].encode()) <= BLOCK_BYTES
    assert found[-1]["blocksLeftOut"] == 600
    few = await read(pipeline, "s1", offset=-5, limit=-5, block_bytes=-5)
    assert len(few["messages"]) == 1
    for beyond in (10**9, 2**63, 10**30):
        assert (await read(pipeline, "s1", offset=beyond))["messages"] == []


@pytest.mark.parametrize(
    "said", ['"\n' * 4000, "\x01" * 3000, "plain " * 1000, [{"type": "text", "text": "\t" * 9000}]]
)
async def test_a_long_result_says_that_it_was_cut(opened: Opened, said: Any) -> None:
    """The requested length plus a mark, however many escapes JSON needs."""
    pipeline = await opened()
    await pipeline.commit(Batch(content=[tool_result("r1", said)]))
    block = (await read(pipeline, "s1", block_bytes=2000))["messages"][0]["blocks"][0]
    assert (len(block["toolResult"]["content"]), block.get("truncated")) == (2000, True)


async def test_what_is_as_long_as_asked_is_not_cut(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(content=[tool_result("r1", '"\n' * 1000)]))
    block = (await read(pipeline, "s1", block_bytes=2000))["messages"][0]["blocks"][0]
    assert (block["toolResult"]["content"], "truncated" in block) == ('"\n' * 1000, False)


async def test_a_page_ends_before_a_message_that_does_not_fit(opened: Opened) -> None:
    """A message that fits in an answer is complete on every page."""
    pipeline = await opened()
    await pipeline.commit(Batch(content=[text(f"m{i:03}", f"{i:06}" * 10_000, ts=at(i)) for i in range(60)]))
    page: dict[str, Any] = {"next": 3}
    found: list[tuple[int, int]] = []
    while "next" in page:
        page = await read(pipeline, "s1", offset=page["next"], limit=200)
        found += [(message["msgIdx"], len(message["blocks"][0]["text"])) for message in page["messages"]]
    assert found == [(i, 60_000) for i in range(3, 60)]


async def test_rails_are_read_one_by_one(opened: Opened) -> None:
    """The main conversation unless another is named; an unknown rail is an error."""
    pipeline = await opened()
    await pipeline.commit(Batch(content=[text("m1", "main words"), text("m2", "side words", rail_id="agent7")]))
    answer = await read(pipeline, "s1", rail="agent7")
    assert [message["messageId"] for message in answer["messages"]] == ["m2"]
    assert [rail["railId"] for rail in answer["rails"]] == ["main", "agent7"]
    with pytest.raises(Missing):
        await read(pipeline, "s1", rail="nobody")


async def test_turns_outlive_their_content(opened: Opened) -> None:
    """Pruned or never stored: the page says which, and still lists the turns with costs."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1")], content=[text("m1", "words")]))
    await pipeline.forget(["s1"])
    answer = await read(pipeline, "s1")
    assert (answer["retained"], answer["why"]) == (False, "content not retained: it was pruned")
    assert answer["messages"][0]["turn"]["costUsd"] == pytest.approx(0.0006)
    await opened.close()
    pipeline = await opened("off")
    await pipeline.commit(Batch(entries=[turn("m9", session_id="s9")], content=[text("m9", "words", session_id="s9")]))
    answer = await read(pipeline, "s9")
    assert "none of this session was stored" in answer["why"]
    assert answer["total"] == 1


async def test_deleted_content_files_are_reported(opened: Opened) -> None:
    """While the daemon runs, the index still has the messages; their turns are listed as well."""
    pipeline = await opened()
    words = [text("m1", "words"), text("p2", "never answered", session_id="s2")]
    await pipeline.commit(Batch(entries=[turn("m1"), Session(session_id="s2", source="claude-code")], content=words))
    assert (await read(pipeline, "s2"))["retained"] is True
    for name in ("s1", "s2"):
        pipeline.content.sidecars.path(name).unlink()
    for name, turns in (("s1", 1), ("s2", 0)):
        answer = await read(pipeline, name)
        assert (answer["retained"], answer["total"], len(answer["messages"])) == (False, turns, turns)
        assert answer["why"] == "content is gone: the session's file in content/ was deleted or cannot be read"


async def test_a_session_of_a_program_without_messages_is_empty(opened: Opened) -> None:
    pipeline = await opened()
    made = Session(session_id="s3", source="api", created_by="me")
    await pipeline.commit(Batch(entries=[made]))
    assert (await read(pipeline, "s3"))["why"] == "it has no messages yet"


async def test_a_lost_blob_is_marked(opened: Opened) -> None:
    """A lost blob is marked and not replaced by other text."""
    pipeline = await opened()
    await pipeline.commit(Batch(content=[text("m1", "x" * 5000), tool_result("r1", "y" * 5000)]))
    await opened.close()
    opened.home.blobs.unlink()
    pipeline = await opened()
    first, second = (await read(pipeline, "s1"))["messages"]
    assert first["blocks"] == [{"kind": "text", "lost": "missing"}]
    assert second["blocks"][0]["lost"] == "missing"


async def test_reading_goes_on_while_content_is_pruned(opened: Opened) -> None:
    """A pack rewritten under its number is not mistaken for the old one."""
    pipeline = await opened()
    recall = Recall(pipeline.home.content)
    said = [text(f"m{i}", f"{i}" * 3000, session_id=f"s{i % 2}") for i in range(6)]
    await pipeline.commit(Batch(content=said))

    async def texts(session: str) -> list[Any]:
        asked = MessagesParams(id=session)
        found = await pipeline.index.ask(lambda db: messages(View(db, PRICES, START_MS), recall, asked))
        return [message["blocks"][0]["text"] for message in found["messages"]]

    assert await texts("s1") == [str(i) * 3000 for i in (1, 3, 5)]
    await pipeline.forget(["s0"])
    assert await texts("s1") == [str(i) * 3000 for i in (1, 3, 5)]
    recall.close()


async def test_a_title_without_a_time_says_nothing_of_when_a_session_was(opened: Opened) -> None:
    """A title before the first line with a time does not date its session to 1970."""
    pipeline = await opened()
    name = text("title:custom", "Named", role="system", kind="title", ts="1970-01-01T00:00:00.000Z")
    await pipeline.commit(Batch(content=[name]))
    assert (await known(pipeline, "s1"))["createdAt"] is None
    await pipeline.commit(Batch(entries=[turn("m1", ts=at(5))], content=[text("m1", ts=at(5))]))
    facts = await known(pipeline, "s1")
    assert (facts["title"], facts["createdAt"], facts["updatedAt"]) == ("Named", at(5), at(5))
    assert ids(await listed(pipeline, until="2020-01-01")) == []


@pytest.mark.parametrize("mode", ["hash-only", "off"])
async def test_without_content_the_answers_are_the_messages(opened: Opened, mode: str) -> None:
    """Without content the messages of a session are its turns."""
    pipeline = await opened(mode)
    await pipeline.commit(Batch(entries=[turn("m1"), turn("m2", turn_index=1)], content=[text("m1"), text("m2")]))
    assert (await known(pipeline, "s1"))["messageCount"] == 2
    assert (await read(pipeline, "s1"))["total"] == 2


async def test_a_session_has_its_project_in_its_first_turn_already(opened: Opened) -> None:
    """While that still grows: it is listed with its folder, before older sessions of the same one."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m0", session_id="old", project="/p/x")]))
    grown = turn("m1", session_id="new", project="/p/x", project_key="host/x", ts=at(9))
    change = Change(open=[OpenTurn(grown, "claude-code", "/log")], files=[FileChange("claude-code", "/log", b"c")])
    await pipeline.commit(Batch(content=[text("m1", session_id="new", ts=at(9))]))
    await pipeline._stores.apply(change)
    found = (await listed(pipeline, project="/p/x"))["sessions"]
    assert [(one["sessionId"], one["project"]) for one in found] == [("new", "/p/x"), ("old", "/p/x")]
    assert found[0]["projectKey"] == "host/x"
