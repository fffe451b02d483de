"""Sessions of programs that call models themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from burnd.clients.folders import Folders
from burnd.content.recall import Recall
from burnd.contract.sessions import AppendParams, MessagesParams, NewParams, SetParams
from burnd.contract.validation import decoded
from burnd.harness.api import sessions
from burnd.harness.api.messages import PushedMessage
from burnd.harness.api.sessions import ExistingSession, existing_session
from burnd.queries.messages import messages as page_of
from burnd.queries.sessions import exactly
from burnd.queries.view import Missing, Refusal, View
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Turn, Usage
from burnd.records.times import to_iso
from tests.conftest import Opened
from tests.dump import index_dump
from tests.folded import Folded
from tests.make import START_MS, at, read_content, text, turn
from tests.search.library import PRICES, library

USAGE = {"input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 4}
PROMPT = {"id": "p1", "role": "user", "content": "please refactor the cron job"}
CALL = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "npm test"}}
ANSWER = {
    "id": "a1",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "usage": USAGE,
    "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "sure"}, CALL],
    "stopReason": "tool_use",
}
RESULT = {
    "id": "r1",
    "role": "tool",
    "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "failed", "is_error": True}],
}


class Program:
    """A program that records its own sessions. `now` may be moved."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.recall = Recall(pipeline.home.content)

    async def ask(self, question: Any) -> Any:
        return await self.pipeline.index.ask(lambda db: question(View(db, PRICES, START_MS)))

    async def new(self, **params: Any) -> str:
        asked = NewParams(**{"agent": "me", "sender": "you"} | params)
        return await sessions.new(self.pipeline, self.ask, Folders().resolve, asked)

    async def append(self, session: str, *messages: dict[str, Any], **params: Any) -> dict[str, Any]:
        raw = msgspec.json.encode({"id": session, "messages": list(messages), **params})
        given = decoded(AppendParams, raw)
        return await sessions.append(self.pipeline, self.ask, self.recall, given)

    async def facts(self, session: str) -> dict[str, Any]:
        found = await self.ask(lambda view: exactly(view, session))
        facts: dict[str, Any] = found.facts
        return facts

    def turns(self) -> list[Turn]:
        return sorted(Folded(self.pipeline.journal.read()).turns.values(), key=lambda t: (t.rail_id, t.turn_index))


@pytest.fixture
async def program(opened: Opened) -> AsyncIterator[Program]:
    clock = [START_MS]

    def now() -> int:
        clock[0] += 1000
        return clock[0]

    made = Program(await opened(now=now))
    yield made
    made.recall.close()


async def test_a_new_session_is_always_another_and_stays(program: Program, opened: Opened) -> None:
    """Two calls make two sessions, which exist after a restart even when empty."""
    first, second = await program.new(), await program.new(project="/p/x", source="openai-api", title="Mine")
    assert first != second
    again = Program(await opened())
    facts = await again.facts(second)
    assert (facts["agent"], facts["createdBy"], facts["title"], facts["project"]) == ("me", "you", "Mine", "/p/x")
    assert facts["messageCount"] == 0
    assert (await again.facts(first))["source"] is None


async def test_what_is_appended_is_content_and_turns(program: Program) -> None:
    """Messages are kept, answers with a model are turns with their usage, calls, sizes and label."""
    session = await program.new(project="/p/x")
    told = await program.append(session, PROMPT, ANSWER)
    assert (told["appended"], told["known"]) == (2, 0)
    (made,) = program.turns()
    assert made.usage == Usage(input=9, output=3, cache_read=4)
    assert (made.source, made.project, made.turn_index, made.quality) == ("anthropic-api", "/p/x", 0, "final")
    assert [(call.name, call.target, call.is_error) for call in made.tool_calls] == [("Bash", "npm test", None)]
    assert [(block.kind, block.bytes) for block in made.entered] == [("prompt", 28)]
    assert [block.kind for block in made.made] == ["thinking", "text", "call"]
    assert (made.prompt_id, made.prompt_words, made.activity) == ("p1", ("refactoring",), "testing")
    kept = [(c.message_id, c.role, c.kind) for c in read_content(program.pipeline.content, session)]
    assert kept == [
        ("p1", "user", "text"),
        ("a1", "assistant", "thinking"),
        ("a1", "assistant", "text"),
        ("a1", "assistant", "tool_use"),
    ]


async def test_a_result_is_noted_with_its_call(program: Program) -> None:
    """A result belongs to the turn that made the call, even if it arrives later."""
    session = await program.new()
    await program.append(session, PROMPT, ANSWER)
    await program.append(session, RESULT)
    (made,) = program.turns()
    assert made.tool_calls[0].is_error
    assert made.tool_calls[0].result_hash
    assert made.rev == 2
    await program.append(session, ANSWER | {"id": "a2", "content": "next"})
    assert [(block.kind, block.call_id) for block in program.turns()[1].entered] == [("result", "c1")]


def many(turns: int) -> list[dict[str, Any]]:
    """Prompts and answers, each with a call."""
    asked = [PROMPT | {"id": f"p{n}"} for n in range(turns)]
    made = [ANSWER | {"id": f"a{n}", "content": [CALL | {"id": f"c{n}"}]} for n in range(turns)]
    return [message for pair in zip(asked, made, strict=True) for message in pair]


async def test_adding_costs_the_same_in_a_long_session(program: Program) -> None:
    """Earlier messages are not searched to detect duplicates."""
    steps: dict[int, int] = {}
    given = msgspec.json.decode(
        msgspec.json.encode([PROMPT | {"id": "new"}, ANSWER | {"id": "a1"}]), type=list[PushedMessage]
    )
    for turns in (3, 300):
        session = await program.new()
        await program.append(session, *many(turns))

        def counted(view: View, session: str = session, turns: int = turns) -> ExistingSession:
            steps[turns] = 0

            def count() -> None:
                steps[turns] += 1

            view.db.set_progress_handler(count, 1)
            try:
                return existing_session(view, program.recall, session, given)
            finally:
                view.db.set_progress_handler(None, 1)

        found = await program.ask(counted)
        assert found.times.keys() == {found.messages[1].id}
    assert steps[300] < 2 * steps[3]


async def test_a_call_may_be_answered_long_after(program: Program) -> None:
    """However many turns there were since, its result is noted with it."""
    session = await program.new()
    await program.append(session, *many(120))
    late = [one | {"tool_use_id": "c3"} for one in RESULT["content"]]  # type: ignore[operator]
    await program.append(session, RESULT | {"content": late})
    answered = [one.message_id for one in program.turns() if any(call.is_error for call in one.tool_calls)]
    assert answered == ["a3"]


async def test_the_same_again_changes_nothing(program: Program) -> None:
    """Sent twice, in one request or in two, a message is there once: in ledger, content and index."""
    session = await program.new()
    await program.append(session, PROMPT, ANSWER, RESULT, PROMPT)
    end = program.pipeline.journal.end
    before = await index_dump(program.pipeline.index)
    facts = await program.facts(session)
    for messages in ([PROMPT], [ANSWER], [RESULT, ANSWER], [PROMPT, ANSWER, RESULT]):
        told = await program.append(session, *messages)
        assert (told["appended"], told["known"]) == (0, len(messages))
    assert program.pipeline.journal.end == end
    assert await index_dump(program.pipeline.index) == before
    assert await program.facts(session) == facts
    assert facts["messageCount"] == 3


async def test_two_sessions_may_use_the_same_ids(program: Program) -> None:
    """I1: each keeps its own messages and bill, whichever is sent again; none is counted twice."""
    first, second = await program.new(), await program.new()
    other = ANSWER | {"usage": {"input_tokens": 999, "output_tokens": 3}}
    for times in range(2):
        for session, answer in ((first, ANSWER), (second, other)):
            told = await program.append(session, PROMPT, answer, RESULT)
            assert (told["appended"], told["known"]) == ((0, 3) if times else (3, 0))
    bills = {made.session_id: (made.usage.input, made.tool_calls[0].is_error) for made in program.turns()}
    assert bills == {first: (9, True), second: (999, True)}
    assert [made.message_id for made in program.turns()] == ["a1", f"a1@{second}"]
    for session in (first, second):
        assert (await program.facts(session))["messageCount"] == 3


async def test_the_first_text_of_a_message_stays(program: Program) -> None:
    """Sending a message again with different text adds nothing: texts are not mixed, and turns keep their calls."""
    session = await program.new()
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    await program.append(session, PROMPT | {"content": blocks}, ANSWER)
    before = await index_dump(program.pipeline.index)
    end = program.pipeline.journal.end
    prompt = PROMPT | {"content": [{"type": "text", "text": "uno"}], "ts": at(-50)}
    assert (await program.append(session, prompt, ANSWER | {"content": "no"}))["appended"] == 0
    assert await index_dump(program.pipeline.index) == before
    assert program.pipeline.journal.end == end
    kept = [record.text for record in read_content(program.pipeline.content, session) if record.message_id == "p1"]
    assert kept == ["one", "two"]


async def test_an_answer_may_say_its_usage_first_and_its_words_later(program: Program) -> None:
    """Text is added to a message that had only usage; sending it again without text removes none."""
    session = await program.new()
    bare = {name: ANSWER[name] for name in ("id", "model", "usage")}
    for messages in ([bare], [ANSWER], [bare]):
        await program.append(session, *messages)
    (made,) = program.turns()
    assert [block.kind for block in made.made] == ["thinking", "text", "call"]
    assert [record.text for record in read_content(program.pipeline.content, session)] == ["hm", "sure", None]
    assert (await program.facts(session))["messageCount"] == 1


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}


@pytest.mark.parametrize("content", [None, "", [], [IMAGE], [{"type": "redacted_thinking", "data": "x"}]])
async def test_a_message_without_words_is_one_message(program: Program, content: Any) -> None:
    """It is counted once however often it is sent, and it can be read."""
    session = await program.new()
    for times in range(3):
        told = await program.append(session, {"id": "e1", "role": "user", "content": content})
        assert told["appended"] == (0 if times else 1)
    assert (await program.facts(session))["messageCount"] == 1
    (record,) = read_content(program.pipeline.content, session)
    if content == [IMAGE]:
        assert record.file is not None
        assert (record.kind, record.file.data) == ("file", b"hello")
    else:
        assert (record.kind, record.text) == ("text", "")


async def test_forgotten_messages_are_not_recorded_again(program: Program) -> None:
    """Sent again after its content was deleted, a message is known, is not counted again, and its words stay away."""
    session = await program.new()
    await program.append(session, PROMPT, ANSWER, RESULT)
    await program.pipeline.forget([session])
    for _ in range(2):
        told = await program.append(session, PROMPT, ANSWER, RESULT)
        assert (told["appended"], told["known"]) == (0, 3)
    assert (await program.facts(session))["messageCount"] == 3
    assert read_content(program.pipeline.content, session) == []
    await program.append(session, PROMPT | {"id": "p2"})
    assert (await program.facts(session))["messageCount"] == 4
    assert [record.message_id for record in read_content(program.pipeline.content, session)] == ["p2"]


async def test_answers_of_which_only_the_usage_is_known_stand_among_the_others(program: Program) -> None:
    """They are messages that can be read, in their place; what led to one does not lead to the next."""
    session = await program.new()
    bare = {name: ANSWER[name] for name in ("model", "usage")}
    await program.append(session, PROMPT, turns=[bare | {"id": "t1"}])
    await program.append(session, turns=[bare | {"id": "t2"}])
    assert [[block.kind for block in made.entered] for made in program.turns()] == [["prompt"], []]
    kept = [record.message_id for record in read_content(program.pipeline.content, session)]
    assert kept == ["p1", "t1", "t2"]
    assert (await program.facts(session))["messageCount"] == 3


async def test_late_usage_revises_the_turn(program: Program) -> None:
    """A repeated answer with other usage is the same turn, with the latest usage."""
    session = await program.new()
    await program.append(session, PROMPT, ANSWER)
    await program.append(session, ANSWER | {"usage": {"input_tokens": 9, "output_tokens": 30}})
    (made,) = program.turns()
    assert (made.rev, made.usage.output) == (2, 30)


async def test_what_is_billed_beside_an_answer_is_a_turn_of_its_own(program: Program) -> None:
    """A usage object may hold calls that its sums leave out, of another model: each is recorded, once."""
    beside = [{"type": "message"}, {"type": "compaction", "model": "claude-haiku-4-5", "input_tokens": 5}]
    session = await program.new()
    for _ in range(2):
        await program.append(session, PROMPT, ANSWER | {"usage": USAGE | {"iterations": beside}})
    told = {made.message_id: (made.model, made.usage.input, made.rev) for made in program.turns()}
    assert told == {"a1": ("claude-sonnet-4-5", 9, 1), "a1:iter:1": ("claude-haiku-4-5", 5, 1)}


async def test_every_append_moves_the_session(program: Program) -> None:
    """`updatedAt` and `messageCount` go up with each, whatever times the messages have."""
    session = await program.new()
    seen = [await program.facts(session)]
    for n in range(3):
        await program.append(session, PROMPT | {"id": f"p{n}", "ts": at(-100_000 + n)})
        seen.append(await program.facts(session))
    assert [facts["messageCount"] for facts in seen] == [0, 1, 2, 3]
    times = [facts["updatedAt"] for facts in seen]
    assert times == sorted(set(times))
    assert seen[-1]["createdAt"] == at(-100_000)


async def test_a_clock_that_is_ahead_does_not_hold_a_session_up(program: Program) -> None:
    """A message from the future gets the current time, also when sent again; later messages are newer."""
    session = await program.new()
    future = PROMPT | {"ts": "2090-01-01T00:00:00Z"}
    await program.append(session, future)
    before = (await program.facts(session))["updatedAt"]
    assert before < "2090"
    await program.append(session, future)
    assert (await program.facts(session))["updatedAt"] == before
    await program.append(session, PROMPT | {"id": "p2"})
    assert (await program.facts(session))["updatedAt"] > before


@pytest.mark.parametrize(
    ("usage", "source"),
    [
        (USAGE, "anthropic-api"),
        ({"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}, "openai-api"),
        ({"promptTokenCount": 5, "candidatesTokenCount": 6}, "gemini-api"),
    ],
)
async def test_usage_determines_the_source(program: Program, usage: dict[str, Any], source: str) -> None:
    """The first usage object determines the source."""
    session = await program.new()
    await program.append(session, PROMPT)
    assert (await program.facts(session))["source"] is None
    await program.append(session, ANSWER | {"usage": usage})
    assert (await program.facts(session))["source"] == source
    assert program.turns()[0].source == source


async def test_turns_alone_are_counted(program: Program) -> None:
    """Usage without text is a turn without content; no usage gives a partial turn."""
    session = await program.new(source="openai-api")
    await program.append(session, turns=[{"id": "t1", "model": "gpt-5", "usage": {"prompt_tokens": 3}}])
    await program.append(session, turns=[{"id": "t2", "model": "gpt-5", "rail": "helper"}])
    assert [(t.rail_id, t.usage.input, t.quality) for t in program.turns()] == [
        ("helper", 0, "partial"),
        ("main", 3, "final"),
    ]


async def test_turns_are_numbered_in_their_order(program: Program) -> None:
    """Each rail counts for itself, over any number of requests."""
    session = await program.new()
    for n in range(6):
        await program.append(session, ANSWER | {"id": f"a{n}", "rail": ("main", "side")[n % 2], "content": str(n)})
    assert [(t.rail_id, t.turn_index) for t in program.turns()] == [("main", i) for i in range(3)] + [
        ("side", i) for i in range(3)
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [PROMPT | {"id": " "}],
        [PROMPT | {"id": "x" * 300}],
        [PROMPT | {"id": "title:custom"}],
        [PROMPT | {"rail": ""}],
        [ANSWER | {"model": " "}],
        [ANSWER | {"model": "x" * 300}],
        [ANSWER | {"provider": "x" * 300}],
        [ANSWER | {"stopReason": "x" * 300}],
        [ANSWER | {"content": [CALL | {"name": "x" * 300}]}],
        [ANSWER | {"content": [CALL | {"id": "x" * 300}]}],
        [PROMPT | {"ts": "yesterday"}],
        [PROMPT | {"ts": "0001-01-01T00:00:00Z"}],
        [PROMPT | {"ts": "1970-01-01T00:00:00Z"}],
        [PROMPT | {"content": 5}],
        [PROMPT | {"content": [["x"]]}],
        [PROMPT | {"usage": USAGE}],
        [ANSWER | {"model": None}],
        [ANSWER | {"usage": {"input_tokens": "x"}}],
        [ANSWER | {"usage": {"tokens": 1}}],
        [PROMPT, ANSWER, ANSWER | {"id": "a2", "usage": {"prompt_tokens": -1.5}}],
    ],
)
async def test_what_makes_no_sense_is_refused_whole(program: Program, messages: list[dict[str, Any]]) -> None:
    """Nothing of such a request is recorded, not even what would have been sound."""
    session = await program.new()
    end = program.pipeline.journal.end
    with pytest.raises(Refusal):
        await program.append(session, *messages)
    assert program.pipeline.journal.end == end
    assert read_content(program.pipeline.content, session) == []


@pytest.mark.parametrize("turn_", [{"id": "t1"}, {"id": "t1", "role": "user", "model": "gpt-5"}])
async def test_a_turn_has_a_model(program: Program, turn_: dict[str, Any]) -> None:
    """A message without a model is refused."""
    session = await program.new(source="openai-api")
    end = program.pipeline.journal.end
    with pytest.raises(Refusal, match="model"):
        await program.append(session, turns=[turn_])
    assert program.pipeline.journal.end == end


async def test_sessions_of_others_are_not_added_to(program: Program) -> None:
    """Logged sessions are recorded from their logs only; a session that does not exist cannot be extended; one session
    has one source."""
    await program.pipeline.commit(Batch(entries=[turn()], content=[text()]))
    with pytest.raises(Refusal, match="claude-code"):
        await program.append("s1", PROMPT)
    with pytest.raises(Missing):
        await program.append("nobody", PROMPT)
    session = await program.new(source="openai-api")
    with pytest.raises(Refusal, match="openai-api"):
        await program.append(session, PROMPT, source="gemini-api")


async def test_a_title_of_ones_own_wins(program: Program) -> None:
    """Over the harness's, over an earlier one, for as long as it is not taken back."""
    title = text("title:ai", "Harness title", role="system", kind="title")
    await program.pipeline.commit(Batch(entries=[turn()], content=[text(), title]))
    for given, expected in (
        ("Mine", "Mine"),
        ("Other", "Other"),
        ("Mine", "Mine"),
        ("", "Harness title"),
        (" Mine\n", "Mine"),
        ("  ", "Harness title"),
    ):
        await sessions.set_texts(program.pipeline, program.ask, SetParams(id="s1", title=given))
        assert (await program.facts("s1"))["title"] == expected
    await sessions.set_texts(program.pipeline, program.ask, SetParams(id="s1", summary="In short"))
    assert (await program.facts("s1"))["summary"] == "In short"


@pytest.mark.parametrize("params", [{}, {"title": "x" * 600}, {"summary": "x" * 10_001}])
async def test_an_unusable_title_is_refused(program: Program, params: dict[str, str]) -> None:
    session = await program.new()
    with pytest.raises(Refusal):
        await sessions.set_texts(program.pipeline, program.ask, SetParams(id=session, **params))
    with pytest.raises(Missing):
        await sessions.set_texts(program.pipeline, program.ask, SetParams(id="nobody", title="x"))


async def test_a_session_is_under_one_that_there_is(program: Program) -> None:
    first = await program.new()
    assert (await program.facts(await program.new(parent=first)))["parentSessionId"] == first
    for parent in ("", "nobody", first[:8]):
        with pytest.raises(Missing):
            await program.new(parent=parent)


@pytest.mark.parametrize("project", ["", ".", "rel/dir", "~/x", "/a\0b", "/" + "x" * 5000])
async def test_a_project_is_a_whole_path(program: Program, project: str) -> None:
    with pytest.raises(Refusal, match="whole path"):
        await program.new(project=project)


@pytest.mark.parametrize("params", [{"agent": ""}, {"sender": " "}, {"agent": "x" * 300}, {"title": "x" * 600}])
async def test_a_nameless_session_is_refused(program: Program, params: dict[str, str]) -> None:
    with pytest.raises(Refusal):
        await program.new(**params)


@pytest.mark.parametrize("mode", ["hash-only", "off"])
async def test_without_content_the_usage_is_recorded(opened: Opened, mode: str) -> None:
    """In these modes no text is stored, and everything else is the same, also when sent twice."""
    program = Program(await opened(mode))
    session = await program.new()
    for times in range(2):
        told = await program.append(session, PROMPT, ANSWER, RESULT)
        assert told["appended"] == (0 if times else 3)
    (made,) = program.turns()
    assert made.usage.input == 9
    assert made.tool_calls[0].is_error
    assert (made.tool_calls[0].result_hash is None) == (mode == "off")
    assert (await program.facts(session))["messageCount"] == 3
    assert b"refactor the cron" not in program.pipeline.home.ledger.read_bytes()
    program.recall.close()


async def test_the_ledger_alone_gives_it_all_back(program: Program, opened: Opened) -> None:
    """I3: with the index deleted, sessions made over the socket are what they were."""
    session = await program.new(title="Mine")
    await program.append(session, PROMPT, ANSWER, RESULT)
    before = await index_dump(program.pipeline.index)
    await program.pipeline.rebuild_index()
    assert await index_dump(program.pipeline.index) == before
    assert to_iso(START_MS) < (await program.facts(session))["updatedAt"]


async def test_a_system_prompt_is_kept_and_not_searched(opened: Opened) -> None:
    """The program marks system messages; their text does not matter."""
    async with library(opened) as lib:
        program = Program(lib.pipeline)
        session = await program.new()
        prompt = {"id": "s1", "role": "system", "content": "secretsystemword, be brief"}
        await program.append(session, prompt, {"id": "s2", "role": "system", "content": [TEXT]}, PROMPT)
        await lib.calm()
        assert await lib.found("secretsystemword") == []
        kinds = await lib.pipeline.index.rows("SELECT kind FROM messages ORDER BY msg_idx")
        assert kinds == [("system_prompt",), ("system_prompt",), ("text",)]
        assert await lib.found("cron") == [(session, 2)]
        asked = MessagesParams(id=session)
        page = await program.ask(lambda view: page_of(view, program.recall, asked))
        assert [message["blocks"][0]["text"][:16] for message in page["messages"][:2]] == ["secretsystemword"] * 2


TEXT = {"type": "text", "text": "secretsystemword in a block"}
