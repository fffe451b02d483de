"""Finds messages by their words, from a batch to a hit."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
import tantivy

from burnd.queries import search
from burnd.queries.view import Mistaken
from burnd.records import Content, File, Session, ToolCall, ToolResult, ToolUse
from burnd.search import lookup
from burnd.search.index import WORDS
from tests.conftest import Opened
from tests.make import at, text, tool_result, tool_use, turn
from tests.search.library import Library, library

SAID = [
    text("p1", "Please refactor the cron scheduler", role="user"),
    text("t1", "pondering quaternions silently", kind="thinking"),
    text("a1", "Zebra answer:\nfirstword of a line, naïve café"),
    tool_use("u1", {"command": "grep -rn resolve_dirs(config) /srv/app/main.py", "depth": 4711}),
    tool_result("r1", "Traceback: KeyError foo-bar\n  error[E0308] mismatched"),
    tool_result("r2", [{"type": "text", "text": "blockwise getUserName HTTPServer"}]),
    text("c1", "重构定时任务 完成 ✅"),
    text("f1", "", text=None, role="user", kind="file", file=File(mime="text/plain", name="Quarterly_Report.pdf")),
    text("s1", "You are a systemprompt", role="system"),
    text("s2", "x-header: 1\nYou are helpful. " + "Be brief. " * 500 + "systemprompt", role="system"),
    text("s3", '[{"name": "Read", "description": "systemprompt", "input_schema": {}}]', role="system"),
    text("b1", "<bash-stdout>printedbyhand</bash-stdout>", role="system"),
    text("g1", "Ελληνικά ΟΔΟΣ, Ёлка, كِتَابٌ"),
    text("long", "start " + "filler " * 3000 + "buriedneedle end"),
]


async def filled(lib: Library) -> None:
    await lib.add(*SAID, entries=[turn("a1")])


FOUND = [
    ("scheduler", "p1"),
    ("quaternions", "t1"),
    ("firstword", "a1"),
    ("naive", "a1"),
    ("CAFÉ", "a1"),
    ("resolve_dirs(config)", "u1"),
    ("/srv/app/main.py", "u1"),
    ("4711", "u1"),
    ("foo-bar", "r1"),
    ("error[E0308]", "r1"),
    ("KeyError", "r1"),
    ("getUserName", "r2"),
    ("user name", "r2"),
    ("getusername", "r2"),
    ("server", "r2"),
    ("定时", "c1"),
    ("重", "c1"),
    ("✅", "c1"),
    ("ελληνικα", "g1"),
    ("οδος", "g1"),
    ("елка", "g1"),
    ("كتاب", "g1"),
    ("quarterly", "f1"),
    ("printedbyhand", "b1"),
    ("buriedneedle", "long"),
    ('"cron scheduler"', "p1"),
    ("shceduler", "p1"),
]


async def test_every_word_is_found(opened: Opened) -> None:
    """Prompts, answers, thoughts, arguments and results are found by any of their words, however they are written."""
    async with library(opened) as lib:
        await filled(lib)
        for query, message in FOUND:
            (hit,) = (await lib.search(query))["hits"]
            place = await lib.pipeline.index.rows("SELECT message_id FROM messages WHERE msg_idx = ?", (hit["msgIdx"],))
            assert place == [(message,)], query
            (matched,) = [item for item in hit["window"] if item.get("match")]
            assert matched["highlights"], query


async def test_absent_words_are_not_found(opened: Opened) -> None:
    """System prompts are not searched, a phrase in another order is not that phrase, and keys are no words."""
    async with library(opened) as lib:
        await lib.add(*SAID, tool_use("k1", {"keyword": True}))
        for query in ("systemprompt", '"scheduler cron"', '"resolve config"', "nosuchwordatall", "keyword"):
            assert await lib.found(query) == [], query


async def test_a_query_without_words_finds_nothing(opened: Opened) -> None:
    """An empty query, spaces and punctuation find nothing, with a note."""
    async with library(opened) as lib:
        await filled(lib)
        for query in ("", "   ", "?!", '""', "-> == !=", "(", '"', "* ?"):
            answer = await lib.search(query)
            assert answer["hits"] == []
            assert "no word" in answer["note"]


async def test_an_unknown_source_is_an_error(opened: Opened) -> None:
    """Rather than that nothing was found in it."""
    async with library(opened) as lib:
        await filled(lib)
        with pytest.raises(Mistaken, match="unknown source 'claude'"):
            await lib.search("words", source="claude")


async def test_whatever_is_typed_is_words(opened: Opened) -> None:
    """A thousand random strings, with every character that is syntax somewhere, never raise."""
    rng = random.Random(11)
    alphabet = "abcxyz019 \t\n\"'()[]{}<>*?+-~^:;!/\\|&%$#@=._,`\0\u200b\u2028é重ß🚀İ\ufffd"
    syntax = ["AND", "OR", "NOT", "TO", "title:", "rest:*", "/re.*/", "a^2", '"a b"~3', "[1 TO 2]", "scheduler"]
    async with library(opened) as lib:
        await filled(lib)
        for _ in range(1000):
            letters = "".join(rng.choices(alphabet, k=rng.randrange(40)))
            await lib.search(" ".join([letters, *rng.choices(syntax, k=rng.randrange(3))]))
        await lib.search("word " * 20_000)


async def test_a_hit_shows_where_and_what(opened: Opened) -> None:
    """Its session, rail and number, a score, the session's facts, and the messages around it in order."""
    async with library(opened) as lib:
        await filled(lib)
        answer = await lib.search("firstword zebra")
        (hit,) = answer["hits"]
        assert (hit["sessionId"], hit["railId"], hit["msgIdx"]) == ("s1", "main", 2)
        assert hit["score"] > 0
        assert hit["meta"]["messageCount"] == len(SAID)
        assert hit["meta"].keys() >= {"title", "createdAt", "updatedAt"}
        assert [item["msgIdx"] for item in hit["window"]] == [0, 1, 2, 3, 4, 5, 6]
        matched = hit["window"][2]
        assert matched["match"]
        assert matched["role"] == "assistant"
        assert [matched["snippet"][a:b] for a, b in matched["highlights"]] == ["Zebra", "firstword"]
        assert hit["window"][3]["toolName"] == "Read"
        assert hit["window"][4]["toolName"] == "Read"


async def test_a_tools_name_is_shown_where_it_matched(opened: Opened) -> None:
    """The call, its name marked, and not another block of the message."""
    async with library(opened) as lib:
        use = ToolUse(id="c1", name="mcp__zebrafish__lookup", input=msgspec.Raw(b'{"what": "stripes"}'))
        call = msgspec.structs.replace(tool_use("m1", {}, b=1), tool_use=use)
        await lib.add(text("m1", "Let me have a look."), call)
        (matched,) = (await lib.search("zebrafish"))["hits"][0]["window"]
        assert (matched["toolName"], matched["snippet"]) == (
            "mcp__zebrafish__lookup",
            "mcp__zebrafish__lookup\nstripes",
        )
        assert [matched["snippet"][a:b] for a, b in matched["highlights"]] == ["zebrafish"]


async def test_a_result_names_its_tool(opened: Opened) -> None:
    """Also where its call is not shown."""
    async with library(opened) as lib:
        calls = tuple(ToolCall(id=f"c{n}", name=f"Tool{n}") for n in range(3))
        said = [ToolUse(id=call.id, name=call.name, input=msgspec.Raw(b'{"what": "x"}')) for call in calls]
        made = [msgspec.structs.replace(tool_use("a1", {}, b=b), tool_use=use) for b, use in enumerate(said)]
        came = [_result(f"c{n}", f"brought{n}", at(n + 1)) for n in range(3)]
        await lib.add(*made, *came, entries=[turn("a1", tool_calls=calls)])
        for n in range(3):
            for narrowed in ({}, {"tool": f"tool{n}"}):
                (hit,) = (await lib.search(f"brought{n}", before=0, after=0, **narrowed))["hits"]
                assert [item["toolName"] for item in hit["window"]] == [f"Tool{n}"]


def _result(call: str, said: str, ts: str) -> Content:
    result = ToolResult(tool_use_id=call, content=msgspec.Raw(msgspec.json.encode(said)))
    return tool_result(f"r-{call}", ts=ts, tool_result=result)


async def test_the_place_of_a_word_counts(opened: Opened) -> None:
    """In a summary most, then in a title, a prompt, a tool's arguments, anywhere else."""
    async with library(opened) as lib:
        other = text("x", "filler word")
        await lib.add(
            text("m", "read apple", session_id="rest"),
            tool_use("m", {"what": "apple"}, session_id="tool"),
            text("m", "read apple", session_id="user", role="user"),
            *[msgspec.structs.replace(other, session_id=name) for name in ("title", "summary")],
            entries=[
                Session(session_id="title", source="x", title="read apple"),
                Session(session_id="summary", source="x", summary="read apple"),
            ],
        )
        assert [session for session, _ in await lib.found("apple")] == ["summary", "title", "user", "tool", "rest"]


async def test_a_window_is_of_one_rail(opened: Opened) -> None:
    """Four messages before and four after in the same conversation, ignoring other rails."""
    async with library(opened) as lib:
        said = [text(f"m{i:02}", "pear" if i != 20 else "apple", rail_id=("main", "side")[i % 2]) for i in range(40)]
        await lib.add(*said)
        (hit,) = (await lib.search("apple"))["hits"]
        assert (hit["railId"], hit["msgIdx"]) == ("main", 10)
        assert [item["msgIdx"] for item in hit["window"]] == list(range(6, 15))


async def test_one_hit_for_each_session_or_every_one(opened: Opened) -> None:
    """By default the best message of each session; with `all`, every message that matches."""
    async with library(opened) as lib:
        await lib.add(
            *[text(f"m{i}", "apple pie" if i else "apple", session_id=s) for s in ("s1", "s2") for i in range(4)]
        )
        assert sorted(await lib.found("apple")) == [("s1", 0), ("s2", 0)]
        assert sorted(await lib.found("apple", all=True)) == [(s, i) for s in ("s1", "s2") for i in range(4)]


async def test_windows_do_not_repeat(opened: Opened) -> None:
    """No message is in two windows, however close the hits are, and every hit has its own match."""
    async with library(opened) as lib:
        await lib.add(*[text(f"m{i:02}", "apple" if i % 3 == 0 else "pear", ts=at(i)) for i in range(20)])
        hits = (await lib.search("apple", all=True, before=9, after=9))["hits"]
        shown = [item["msgIdx"] for hit in hits for item in hit["window"]]
        assert len(shown) == len(set(shown)) == 20
        assert all(sum("match" in item for item in hit["window"]) == 1 for hit in hits)


async def test_windows_have_no_holes(opened: Opened) -> None:
    """Near hits share no message: each is with its nearest hit, so that every window is contiguous."""
    async with library(opened) as lib:
        said = {3: "apple apple", 5: "apple", 9: "apple pie and more"}
        await lib.add(*[text(f"m{i:02}", said.get(i, "pear"), ts=at(i)) for i in range(20)])
        for before, after in ((4, 4), (0, 4), (4, 0), (1, 1)):
            hits = (await lib.search("apple", all=True, before=before, after=after))["hits"]
            assert sorted(hit["msgIdx"] for hit in hits) == [3, 5, 9]
            windows = [[item["msgIdx"] for item in hit["window"]] for hit in hits]
            assert all(window == list(range(window[0], window[-1] + 1)) for window in windows)
            expected = {n for i in said for n in range(i - before, i + after + 1) if n >= 0}
            assert sorted(n for window in windows for n in window) == sorted(expected)


async def test_a_title_is_no_hit_beside_its_messages(opened: Opened) -> None:
    """With `all`, a session whose title matches is one by its messages; without such, by how it begins."""
    async with library(opened) as lib:
        titles = [Session(session_id=name, source="x", title="apple") for name in ("s1", "s2")]
        said = [text(f"m{i}", "apple" if i < 3 else "pear") for i in range(6)]
        await lib.add(*said, text("m", "pear", session_id="s2"), entries=titles)
        assert sorted(await lib.found("apple", all=True)) == [("s1", 0), ("s1", 1), ("s1", 2), ("s2", 0)]


async def test_bounds_hold_whatever_is_asked(opened: Opened) -> None:
    """Twenty hits, sixteen messages around each, 1,024 bytes of each: never more."""
    async with library(opened) as lib:
        said = [text(f"m{i:03}", "äpple " * 400, session_id=f"s{i // 40}", ts=at(i)) for i in range(1000)]
        await lib.add(*said)
        for before, after in ((10**9, 10**9), (10**9, 0), (0, 10**9), (-5, -5), (4, 4), (20, 3)):
            hits = (await lib.search("apple", limit=10**9, before=before, after=after))["hits"]
            assert len(hits) == 20
            for hit in hits:
                assert 1 <= len(hit["window"]) <= 16
                assert all(len(item["snippet"].encode()) <= 1024 and item["truncated"] for item in hit["window"])
        assert await lib.found("apple", limit=-3) == []


@pytest.mark.parametrize("every", [True, False])
async def test_pages_of_hits_fit_together(opened: Opened, every: bool) -> None:
    """Pages of any size give each hit once, in the order of one long page, and the last is marked."""
    async with library(opened) as lib:
        said = [text(f"m{i:03}", "apple" + " pie" * (i % 9), session_id=f"s{i % 47}", ts=at(i)) for i in range(141)]
        await lib.add(*said)
        orders: list[list[tuple[str, int]]] = []
        for size in (20, 7):
            hits: list[tuple[str, int]] = []
            offset: int | None = 0
            while offset is not None:
                page = await lib.search("apple", all=every, limit=size, offset=offset)
                hits += [(hit["sessionId"], hit["msgIdx"]) for hit in page["hits"]]
                offset = page.get("next")
            orders.append(hits)
        assert orders[0] == orders[1]
        assert len(set(orders[0])) == len(orders[0]) == (141 if every else 47)


async def test_every_page_has_the_number_of_all_hits(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact for words, also with filters and titles; a minimum for phrases, authors and words that are too common."""

    async def matches(query: str, **params: Any) -> tuple[int, bool]:
        answer = await lib.search(query, **{"limit": 7} | params)
        return answer["matches"], answer.get("matchesAtLeast", False)

    async with library(opened) as lib:
        said = [
            text(f"m{i:03}", "apple pie" if i % 3 else "plum", session_id=f"s{i % 47}", ts=at(i)) for i in range(141)
        ]
        titles = [Session(session_id=f"t{n}", source="x", title="apple") for n in range(5)]
        pears = [text("m", "pear", session_id=f"t{n}") for n in range(5)]
        await lib.add(*said, *pears, entries=titles)
        with_apples = {record.session_id for record in said if record.text == "apple pie"}
        assert await matches("apple") == await matches("apple", offset=14) == (len(with_apples) + 5, False)
        assert await matches("apple", all=True) == (94 + 5, False)
        assert await matches("apple plum", session="s3") == (1, False)
        assert await matches("apple", since=at(0)[:10]) == (len(with_apples), True)
        number, is_minimum = await matches('"apple pie"')
        assert is_minimum
        assert 7 <= number <= len(with_apples)
        assert await matches('"apple pie"', session="s1") == (1, False)
        monkeypatch.setattr(lookup, "_MOST_COUNTED", 60)
        assert await matches("apple plum") == (47, True)
        assert await matches("apple") == (20, True)  # those that were looked up for the page


async def test_a_matching_title_ranks_above_its_twin(opened: Opened) -> None:
    """Of two sessions with the same text, the one with a matching title or summary comes first."""
    async with library(opened) as lib:
        for session in ("a", "b", "c", "d"):
            said = [text(f"m{i}", "the cron refactor went well", session_id=session) for i in range(3)]
            await lib.add(*said, entries=[Session(session_id=session, source="claude-code")])
        await lib.add(entries=[Session(session_id="b", source="claude-code", title="Cron refactor")])
        await lib.add(text("title:ai", "About cron", session_id="c", role="system", kind="title"))
        await lib.add(entries=[Session(session_id="d", source="claude-code", summary="refactor of the cron jobs")])
        ranked = [session for session, _ in await lib.found("cron refactor")]
        assert set(ranked[:2]) == {"b", "d"}
        assert ranked[2:] == ["c", "a"]


def compaction(session: str, words: str, message_id: str = "c1", seconds: float = 30, **changes: Any) -> Content:
    facts = {"session_id": session, "role": "system", "kind": "summary", "ts": at(seconds)}
    return text(message_id, words, **facts | changes)


async def test_a_compacted_session_ranks_above_its_twin(opened: Opened) -> None:
    """Its summary counts beside its messages, with or without a title, however long it is, and with `role` as well."""
    long = "the cron refactor went well, and then " + "much else was done " * 400
    async with library(opened) as lib:
        for session, title in (("a", None), ("b", None), ("c", "Cron refactor"), ("d", "Cron refactor")):
            is_twin = session in ("a", "c")  # and later: of two alike it would come first
            said = [
                text(f"m{i}", "the cron refactor went well", session_id=session, ts=at(i + 100 * is_twin))
                for i in range(3)
            ]
            more = [text("z", "else", session_id=session) if is_twin else compaction(session, long)]
            about = [Session(session_id=session, source="claude-code", title=title)]
            await lib.add(*said, *more, text("last", "x", session_id=session, ts=at(200)), entries=about)
        for params in ({}, {"role": "assistant"}):
            ranked = [session for session, _ in await lib.found("cron refactor", **params)]
            assert ranked == ["d", "c", "b", "a"], params
        assert (await lib.found("cron", role="system"))[0][1] == 3
        assert sorted(hit[0] for hit in await lib.found('"much else was done"')) == ["b", "d"]


async def test_a_summary_weighs_as_much_as_one_that_a_client_set(opened: Opened) -> None:
    """Three times what an answer's words count, and twice what a prompt's do: also of an earlier compaction."""
    words = "apple banana"
    async with library(opened) as lib:
        for session in ("one", "two", "three"):
            await lib.add(text("m", words, session_id=session), text("n", "x", session_id=session, ts=at(60)))
        await lib.add(compaction("two", words), compaction("two", "other words", "c2", 40))
        await lib.add(entries=[Session(session_id="three", source="x", summary=words)])
        scores = {hit["sessionId"]: hit["score"] for hit in (await lib.search("banana"))["hits"]}
        assert scores["two"] == pytest.approx(scores["three"], rel=0.1)
        assert scores["one"] < scores["two"] / 2


async def test_a_subagents_compaction_is_not_its_sessions_summary(opened: Opened) -> None:
    async with library(opened) as lib:
        for session, rail in (("a", "main"), ("b", "agent-1")):
            await lib.add(
                text("m", "apple", session_id=session, ts=at(100 * (session == "b"))),
                compaction(session, "apple pie", rail_id=rail),
                text("z", "x", session_id=session, ts=at(200)),
            )
        assert [session for session, _ in await lib.found("apple")] == ["a", "b"]
        assert lib.index.searcher.doc_freq(WORDS, "&apple") == 1


async def test_a_summary_that_grows_or_goes_is_counted_once(opened: Opened) -> None:
    """opencode fills its rows little by little; a session that is forgotten takes its summary along."""
    async with library(opened) as lib:
        await lib.add(compaction("s1", "apple"))
        await lib.add(compaction("s1", "apple pie"))
        await lib.add(compaction("s1", "banana", b=1))
        assert await lib.found("pie") == [("s1", 0)]
        query = tantivy.Query.term_query(lib.index.schema, WORDS, "&apple", "freq")
        assert len(lib.index.searcher.search(query, 10).hits) == 1
        assert lib.holds("banana")
        await lib.pipeline.forget(["s1"])
        await lib.calm()
        assert not lib.holds("apple")
        assert not lib.holds("banana")


async def test_a_matching_title_outranks_many_twins(opened: Opened) -> None:
    """With many sessions of the same text, and many titles that match partly."""
    async with library(opened) as lib:
        names = [f"s{n:03}" for n in range(250)]
        await lib.add(
            *[text("m", "the cron refactor went well", session_id=name) for name in names],
            entries=[Session(session_id=name, source="x", title="the week") for name in names[:220]]
            + [Session(session_id="s240", source="x", title="cron work")],
        )
        for narrowed in ({}, {"role": "assistant"}, {"all": True}):
            assert (await lib.found("the cron refactor", limit=1, **narrowed))[0] == ("s240", 0), narrowed


@pytest.mark.parametrize("seen", [20, 1000])
async def test_a_title_counts_however_many_match_better(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, seen: int
) -> None:
    """The session's title counts for every matching message, even the last."""
    monkeypatch.setattr(lookup, "_TITLES_SEEN", seen)
    monkeypatch.setattr(search, "_TITLES", 10)
    titles = {f"s{n:02}": "kumquat" for n in range(30)} | {
        "with": "kumquat " + "and much else " * 20,
        "without": "else",
    }
    async with library(opened) as lib:
        await lib.add(
            text("m", "a kumquat in a basket", session_id="with", ts=at(0)),
            text("m", "a kumquat in a basket", session_id="without", ts=at(60)),  # of two alike the later is first
            *[text("m", "nothing of it", session_id=name) for name in titles if name.startswith("s")],
            entries=[Session(session_id=name, source="x", title=title) for name, title in titles.items()],
        )
        ranked = [session for session, _ in await lib.found("kumquat", role="assistant")]
        assert ranked == ["with", "without"]


async def test_a_title_is_found_in_any_script(opened: Opened) -> None:
    """Letters that fold to several, letters with marks, and scripts that have no accents to fold."""
    title = "Straße Øre район 한국어 ドキュメント étude"
    async with library(opened) as lib:
        await lib.add(text("m", "words"), entries=[Session(session_id="s1", source="x", title=title)])
        for query in ("straße", "STRASSE", "øre", "ore", "район", "한국", "ドキュ", "e\u0301tude"):
            (hit,) = (await lib.search(query))["hits"]
            assert len(hit["matchedTitle"]["highlights"]) == 1, query


async def test_words_may_be_spread_over_a_session(opened: Opened) -> None:
    """A session with all words, each in another message, ranks above those with some in one."""
    async with library(opened) as lib:
        words = ["cron", "scheduler", "timezone", "retry", "backoff"]
        await lib.add(*[text(word, f"about the {word} here", session_id="mine") for word in words])
        for n in range(40):
            pair = " ".join((words * 2)[n % 5 : n % 5 + 2])
            await lib.add(text("m", f"about the {pair}", session_id=f"other{n}"))
        assert (await lib.found(" ".join(words)))[0][0] == "mine"


async def test_all_words_apart_outrank_one_of_them(opened: Opened) -> None:
    """`cron` in one message and `refactor` in the next: above every session that only has one of them, even twice."""
    long = "and so on with many other words that say little of what this was about"
    async with library(opened) as lib:
        await lib.add(*[text("m", f"cron, {long}, cron", session_id=f"cron{n}") for n in range(30)])
        prompts = [text("m", f"please refactor {long}", session_id=f"prompt{n}", role="user") for n in range(30)]
        await lib.add(*prompts, *[text("m", f"{long} some weeks ago", session_id=f"ago{n}") for n in range(30)])
        await lib.add(text("a", f"{long}, the cron job"), text("b", f"{long}, a refactor"), text("c", "some weeks ago"))
        for query in ("cron refactor", "The cron refactor, some weeks ago"):
            assert (await lib.found(query))[0][0] == "s1", query


async def test_words_apart_rank_below_words_together(opened: Opened) -> None:
    """Of two sessions with all words, the one with a message that has them all comes first."""
    async with library(opened) as lib:
        await lib.add(
            text("a", "the cron job here", session_id="apart"), text("b", "we refactor it", session_id="apart")
        )
        await lib.add(text("a", "about the cron refactor", session_id="together"))
        assert [session for session, _ in await lib.found("cron refactor")] == ["together", "apart"]


async def test_a_word_typed_twice_over_counts_whole(opened: Opened) -> None:
    """A word that is part of another word of the query has its full weight."""
    async with library(opened) as lib:
        await lib.add(text("a", "getUserName"), text("b", "user"), *[text(f"c{n}", "other words") for n in range(20)])
        alone, behind = [
            next(hit["score"] for hit in (await lib.search(query, all=True))["hits"] if hit["msgIdx"] == 1)
            for query in ("user", "getUserName user")
        ]
        assert behind == pytest.approx(alone)


async def test_a_title_alone_is_found(opened: Opened) -> None:
    """Words that only a title has find the session, which is shown from its beginning."""
    async with library(opened) as lib:
        said = [text("m1", "first words"), text("m2", "more")]
        await lib.add(*said, entries=[Session(session_id="s1", source="x", title="Unicorn hunt")])
        (hit,) = (await lib.search("unicorn"))["hits"]
        assert hit["msgIdx"] == 0
        title = hit["matchedTitle"]
        assert [title["snippet"][a:b] for a, b in title["highlights"]] == ["Unicorn"]
        assert [item["snippet"] for item in hit["window"]] == ["first words", "more"]
        assert await lib.found("unicorn", role="user") == []


FILTERED = [
    (text("u", "apple", role="user", ts=at(0), session_id="one"), turn("x1", session_id="one", project="/p/one")),
    (text("a", "apple", ts=at(100), session_id="two"), turn("x2", session_id="two", project="/p/two")),
    (
        tool_use("c", {"what": "apple"}, ts=at(200), session_id="three"),
        turn("x3", session_id="three", project="/p/one/sub", source="opencode"),
    ),
    (tool_result("r", "apple", ts=at(300), session_id="three"), turn("x4", session_id="three", source="opencode")),
]


NARROWED: list[tuple[dict[str, Any], set[str]]] = [
    ({"project": "/p/one"}, {"one", "three"}),
    ({"project": "/p/two"}, {"two"}),
    ({"source": "opencode"}, {"three"}),
    ({"source": "gemini-api"}, set()),
    ({"since": at(150)}, {"three"}),
    ({"until": at(150)}, {"one", "two"}),
    ({"since": at(50), "until": at(150)}, {"two"}),
    ({"role": "user"}, {"one"}),
    ({"role": "assistant"}, {"two", "three"}),
    ({"role": "tool_result"}, {"three"}),
    ({"tool": "read"}, {"three"}),
    ({"tool": "Bash"}, set()),
    ({"session": "tw"}, {"two"}),
    ({"session": "two", "project": "/p/one"}, set()),
]


async def test_filters_narrow_the_hits(opened: Opened) -> None:
    """By project, harness, time, role, tool and session, alone or together."""
    async with library(opened) as lib:
        await lib.add(*[content for content, _ in FILTERED], entries=[entry for _, entry in FILTERED])
        for filters, expected in NARROWED:
            assert {session for session, _ in await lib.found("apple", **filters)} == expected, filters


@pytest.mark.parametrize("params", [{}, {"all": True}])
async def test_a_wide_filter_loses_nothing(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, params: dict[str, Any]
) -> None:
    """A project has very many sessions, and others have all the best matches."""
    monkeypatch.setattr(lookup, "_MOST_FILTERED", 1)
    monkeypatch.setattr(lookup, "_PAGES", (4, 4))
    async with library(opened) as lib:
        await lib.add(*[text("m", "apple", session_id=f"o{n}") for n in range(20)])
        mine = [text("m", "apple " + "word " * 99, session_id=f"p{n}") for n in range(3)]
        await lib.add(*mine, entries=[turn(f"t{n}", session_id=f"p{n}", project="/p/mine") for n in range(3)])
        assert sorted(await lib.found("apple", project="/p/mine", **params)) == [(f"p{n}", 0) for n in range(3)]
        await lib.add(*[text(word, word, session_id=f"o{n}") for n in range(5) for word in ("plum", "cherry")])
        await lib.add(text("n", "a plum " + "word " * 99, session_id="p1"))
        assert await lib.found("plum cherry", project="/p/mine", **params) == [("p1", 1)]


async def test_filters_look_into_a_message(opened: Opened) -> None:
    """A harness may store an answer, its calls and results as one message: the role of a word still counts."""
    ran = tool_use("m", {"command": "pear"}, b=1, tool_use=ToolUse(id="c2", name="Bash", input=msgspec.Raw(b'"pear"')))
    async with library(opened) as lib:
        await lib.add(text("m", "apple"), ran, tool_use("m", {"path": "fig"}, b=2), tool_result("m", "plum", b=3))
        for word, fits, role in (
            ("apple", {"role": "assistant"}, "assistant"),
            ("pear", {"tool": "Bash"}, "assistant"),
            ("bash", {"tool": "Bash"}, "assistant"),
            ("plum", {"role": "tool_result"}, "tool_result"),
            ("plum apple", {"tool": "read"}, "tool_result"),
        ):
            (hit,) = (await lib.search(word, **fits))["hits"]
            assert hit["window"][0]["role"] == role
        for word, other in (
            ("apple", {"role": "tool_result"}),
            ("pear", {"tool": "Read"}),
            ("plum", {"role": "assistant"}),
            ("plum", {"tool": "Bash"}),
            ("apple", {"tool": "Bash"}),
        ):
            assert await lib.found(word, **other) == []


async def test_a_phrase_is_found_behind_better_matches(opened: Opened) -> None:
    """A session's best message by its words may not have the phrase: another of its messages does."""
    async with library(opened) as lib:
        await lib.add(text("m0", "refused connection"), text("m1", "then at last: connection refused, " + "word " * 50))
        assert await lib.found('"connection refused"') == [("s1", 1)]
        assert await lib.found('"connection refused" "=>"') == [("s1", 1)]


async def test_looking_for_a_phrase_takes_no_longer_than_it_may(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With very many candidates only the best are checked, and the answer reports it."""
    async with library(opened) as lib:
        await lib.add(*[text(f"m{i}", "white and black", session_id=f"s{i}") for i in range(100)])
        await lib.add(text("m", "black and white " + "among many other words " * 30, session_id="long"))
        for limit in ("_SOON_S", "_LATE_S"):
            monkeypatch.setattr(search, limit, 60.0)
        whole = await lib.search('"black and white"')
        assert [hit["sessionId"] for hit in whole["hits"]] == ["long"]
        assert "note" not in whole
        for limit in ("_SOON_S", "_LATE_S"):
            monkeypatch.setattr(search, limit, -1.0)
        in_vain = await lib.search('"black and white"')
        assert in_vain["hits"] == []
        assert "only the best were checked" in in_vain["note"]
        assert len(await lib.found('"white and black"')) == 10


async def test_a_phrase_in_a_title_is_found(opened: Opened) -> None:
    """Also where messages of the session have its words, but not in a row; and it is one hit."""
    async with library(opened) as lib:
        await lib.add(
            text("m0", "refused the connection"),
            entries=[Session(session_id="s1", source="x", title="Connection refused")],
        )
        assert await lib.found('"connection refused"') == [("s1", 0)]
        await lib.add(text("m1", "connection refused"))
        assert await lib.found('"connection refused"') == [("s1", 1)]


async def test_a_long_phrase_is_one_too(opened: Opened) -> None:
    """A pasted line in quotation marks is found, and not lines with another last word."""
    line = " ".join(f"word{n}" for n in range(200))
    async with library(opened) as lib:
        await lib.add(text("m0", f"{line} and"), text("m1", f"{line}x so"))
        assert await lib.found(f'"{line}"', all=True) == [("s1", 0)]


async def test_a_code_is_not_corrected(opened: Opened) -> None:
    """An error code or a number that is nowhere is not another one that is near."""
    async with library(opened) as lib:
        await lib.add(text("m", "error E0308 on port 8080"))
        assert await lib.found("E0309") == []
        assert await lib.found("8081") == []


async def test_a_result_is_found_by_its_tool(opened: Opened) -> None:
    """Results are found by the tool's name, also when they come long after the call."""
    async with library(opened) as lib:
        await lib.add(tool_use("c", {"x": 1}), entries=[turn("c")])
    async with library(opened) as lib:
        await lib.add(tool_result("r", "apple"))
        assert await lib.found("apple", tool="Read") == [("s1", 1)]


async def test_a_message_that_grows_is_found_whole(opened: Opened) -> None:
    """Lines of one message that come one after the other are one hit, with words of all of them."""
    async with library(opened) as lib:
        for n, words in enumerate(["alpha", "beta", "gamma"]):
            await lib.add(text("m1", words, n=n), text(f"other{n}", "delta"))
        for word in ("alpha", "beta", "gamma", '"alpha beta gamma"'):
            assert await lib.found(word, all=True) == [("s1", 0)]


async def test_a_very_long_message_is_searched_to_its_end(opened: Opened) -> None:
    """However long a result is, its last word is found, and it is one hit."""
    async with library(opened) as lib:
        await lib.add(tool_result("r", "word " * 2_000_000 + "lastofall"), text("m", "beside"))
        (hit,) = (await lib.search("lastofall word", all=True))["hits"]
        assert "lastofall" in hit["window"][0]["snippet"]


def _needle(n: int, kind: int) -> Content:
    word = f"needle{n:04}"
    if kind == 0:
        return text(f"m{n}", f"please {word} now", role="user")
    if kind == 1:
        return text(f"m{n}", "x " * 900 + word, kind="thinking")
    if kind == 2:
        return tool_use(f"m{n}", {"deep": [{"er": f"path/{word}.py"}]})
    if kind == 3:
        return tool_result(f"m{n}", "line\n" * 500 + f"{word}()")
    return text(f"m{n}", word)


async def test_nothing_is_lost(opened: Opened) -> None:
    """Every one of many planted words is found, whatever kind of message holds it: all of them, not most."""
    async with library(opened) as lib:
        needles = [_needle(n, n % 5) for n in range(500)]
        for begin in range(0, 500, 50):
            await lib.add(*needles[begin : begin + 50])
        missed = [n for n in range(500) if await lib.found(f"needle{n:04}") != [("s1", n)]]
        assert missed == []


async def test_corrections_are_reported(opened: Opened) -> None:
    """An unknown word is replaced by similar known ones, with a note."""
    async with library(opened) as lib:
        await filled(lib)
        answer = await lib.search("shceduler")
        assert answer["corrected"] == {"shceduler": ["scheduler"]}
        assert "corrected" not in await lib.search("scheduler")


async def test_what_a_tool_answered_in_blocks_is_shown_as_its_text(opened: Opened) -> None:
    """Short or long, only its text is shown without the JSON around it."""
    async with library(opened) as lib:
        short = tool_result("r1", [{"type": "text", "text": "blockwise one"}, {"type": "text", "text": "two"}])
        long = tool_result("r2", [{"type": "text", "text": "started " * 4000}], ts=at(2))
        await lib.add(short, long, text("a1", "the needle", ts=at(3)))
        (hit,) = (await lib.search("needle"))["hits"]
        first, second, _ = hit["window"]
        assert first["snippet"] == "blockwise one\ntwo"
        assert second["snippet"].startswith("started started")
        assert second["truncated"]
        (matched,) = (await lib.search("blockwise", after=0))["hits"][0]["window"]
        assert matched["snippet"] == "blockwise one\ntwo"


async def test_cut_text_is_marked_however_it_is_written(opened: Opened) -> None:
    """A neighbour's text of escapes, six bytes each in JSON, fills its snippet like any other."""
    async with library(opened) as lib:
        await lib.add(tool_result("r1", "\u001b" * 9000), text("a1", "the needle", ts=at(3)))
        (hit,) = (await lib.search("needle"))["hits"]
        assert hit["window"][0]["truncated"]
        assert len(hit["window"][0]["snippet"].encode()) > 1000
