"""Reclassified labels equal live ones, from any remaining ledger and content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.classify.activity import LABELS
from burnd.queries.view import View
from burnd.reclassify import reclassify
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Block, Prune, ToolCall, Turn, Usage
from burnd.records.codec import Entry, encode
from tests.capture.rig import Rig
from tests.capture.trees import own_tree
from tests.conftest import Opened
from tests.harness.claude_code.transcript import Transcript, call, thinking
from tests.harness.claude_code.transcript import text as said
from tests.harness.collect import client_versions
from tests.make import at, examples, stamp, text, tool_result, tool_use, turn


def lines(pipeline: Pipeline) -> list[bytes]:
    return pipeline.home.ledger.read_bytes().splitlines(keepends=True)


def turns(pipeline: Pipeline) -> dict[str, Turn]:
    return {e.entry.message_id: e.entry for e in pipeline.journal.read() if isinstance(e.entry, Turn)}


def without(*names: str) -> Callable[[Any], Any]:
    """Takes these fields out of every turn, as a ledger of another writer would lack them."""
    nothing = {"prompt_words": ()}

    def strip(entry: Any) -> Any:
        if not isinstance(entry, Turn):
            return entry
        return msgspec.structs.replace(entry, **{name: nothing.get(name) for name in names})

    return strip


def without_errors(entry: Any) -> Any:
    if not isinstance(entry, Turn):
        return entry
    calls = tuple(msgspec.structs.replace(one, is_error=None) for one in entry.tool_calls)
    return msgspec.structs.replace(entry, tool_calls=calls)


LABELLED = ("activity", "retries", "has_edits")


async def test_a_label_is_made_from_the_ledger_alone(opened: Opened) -> None:
    """With no content at all, calls, verbs, errors and word classes in the ledger are enough."""
    pipeline = await opened("off")
    calls = (ToolCall(id="c1", name="Bash", target="npm test", is_error=True),)
    edit = (ToolCall(id="c2", name="Edit", target="/p/a.py", is_error=False),)
    await pipeline.commit(
        Batch(
            entries=[
                turn("m1", tool_calls=calls),
                turn("m2", tool_calls=edit, prompt_words=("refactoring",)),
                turn("m3", tool_calls=(), usage=Usage(input=1, reasoning=4)),
                turn("m4", tool_calls=(), made=(Block(kind="thinking", bytes=9),)),
            ]
        )
    )
    assert await reclassify(pipeline) == 4
    found = turns(pipeline)
    assert [found[m].activity for m in ("m1", "m2", "m3", "m4")] == ["testing", "refactoring", "reasoning", "reasoning"]
    assert (found["m2"].has_edits, found["m2"].retries) == (True, 0)


async def test_prompts_and_errors_come_from_content(opened: Opened) -> None:
    """Word classes, verbs, files and failures that the ledger lacks come from content."""
    pipeline = await opened()
    entries: list[Entry] = [
        turn("m1", ts=at(2), tool_calls=(ToolCall(id="c1", name="Edit"),)),
        turn("m2", ts=at(5), turn_index=1, tool_calls=(ToolCall(id="c2", name="Bash"),)),
        turn("m3", ts=at(8), turn_index=2, tool_calls=(ToolCall(id="c3", name="Edit"),)),
    ]
    content = [
        text("p1", "please rename it", role="user", ts=at(1)),
        tool_use("m1", {"file_path": "/p/a.py"}, tool_use=_use("c1", "Edit", {"file_path": "/p/a.py"}), ts=at(2)),
        tool_result("r1", "done", ts=at(3), tool_result=_result("c1", "done")),
        tool_use("m2", None, tool_use=_use("c2", "Bash", {"command": "cd x && FOO=1 git commit -m 'a'"}), ts=at(5)),
        tool_result("r2", "Exit code 1", ts=at(6), tool_result=_result("c2", "Exit code 1")),
        tool_use("m3", None, tool_use=_use("c3", "Edit", {"file_path": "/p/a.py"}), ts=at(8)),
        tool_result("r3", "no", ts=at(9), tool_result=_result("c3", "no such text", is_error=True)),
    ]
    await pipeline.commit(Batch(entries=entries, content=content))
    await reclassify(pipeline)
    found = turns(pipeline)
    assert [found[m].activity for m in ("m1", "m2", "m3")] == ["refactoring", "git", "debugging"]
    assert found["m1"].prompt_words == ("refactoring",)
    assert [found[m].tool_calls[0].target for m in ("m1", "m2")] == ["/p/a.py", "git commit"]
    assert [found[m].tool_calls[0].is_error for m in ("m1", "m2", "m3")] == [False, True, True]
    assert [found[m].prompt_retries for m in ("m1", "m2", "m3")] == [0, 0, 1]
    assert {found[m].prompt_id for m in ("m1", "m2", "m3")} == {"p1"}


def _use(call_id: str, name: str, value: Any) -> Any:
    from burnd.records import ToolUse

    return ToolUse(id=call_id, name=name, input=msgspec.Raw(msgspec.json.encode(value)))


def _result(call_id: str, value: Any, *, is_error: bool | None = None) -> Any:
    from burnd.records import ToolResult

    return ToolResult(tool_use_id=call_id, content=msgspec.Raw(msgspec.json.encode(value)), is_error=is_error)


async def test_a_large_prompt_is_read_from_its_blob(opened: Opened) -> None:
    """A prompt too large for its sidecar counts like any other."""
    pipeline = await opened()
    words = "x" * 3000 + " implement it"
    await pipeline.commit(
        Batch(entries=[turn(ts=at(1), tool_calls=())], content=[text("p1", words, role="user", ts=at(0))])
    )
    await reclassify(pipeline)
    assert turns(pipeline)["m1"].activity == "feature"


async def test_a_turn_that_had_no_prompt_is_not_given_one(opened: Opened) -> None:
    """Live capture follows the chain of lines and may find none: the preceding prompt is not used."""
    pipeline = await opened()
    live = turn("m1", ts=at(2), tool_calls=(), activity="conversation", retries=0, has_edits=False, prompt_retries=0)
    await pipeline.commit(Batch(entries=[live], content=[text("p1", "fix the bug", role="user", ts=at(1))]))
    assert await reclassify(pipeline, force=True) == 0


async def test_a_command_given_as_words(opened: Opened) -> None:
    """Some harnesses give a command as a list of words."""
    pipeline = await opened("full")
    use = _use("c1", "shell", {"command": ["bash", "-lc", "npm test"]})
    await pipeline.commit(
        Batch(
            entries=[turn(ts=at(2), source="codex", tool_calls=(ToolCall(id="c1", name="shell"),))],
            content=[tool_use("m1", None, tool_use=use, ts=at(2))],
        )
    )
    await reclassify(pipeline)
    found = turns(pipeline)["m1"]
    assert (found.activity, found.tool_calls[0].target) == ("testing", "npm test")


async def test_labels_that_are_there_stay_unless_forced(opened: Opened) -> None:
    """Without --force only missing labels are added; with it all are computed again."""
    pipeline = await opened()
    odd = turn("m1", tool_calls=(), activity="deps", retries=3, has_edits=True, prompt_retries=0)
    await pipeline.commit(Batch(entries=[odd, turn("m2", tool_calls=(), retries=3)]))
    assert await reclassify(pipeline) == 1
    found = turns(pipeline)
    assert found["m1"] == odd
    assert (found["m2"].activity, found["m2"].retries, found["m2"].has_edits) == ("conversation", 3, False)
    assert await reclassify(pipeline, force=True) == 2
    assert [(t.activity, t.retries) for t in turns(pipeline).values()] == [("conversation", 0), ("conversation", 0)]


async def test_doing_it_twice_changes_nothing(opened: Opened) -> None:
    """The second time not even the file is another one."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn(f"m{n}", turn_index=n) for n in range(20)]))
    for force in (False, True):
        await reclassify(pipeline, force=force)
        before, place = pipeline.home.ledger.read_bytes(), pipeline.home.ledger.stat().st_ino
        assert await reclassify(pipeline, force=force) == 0
        assert (pipeline.home.ledger.read_bytes(), pipeline.home.ledger.stat().st_ino) == (before, place)


async def test_every_other_line_stays_as_it_is(opened: Opened) -> None:
    """Stamps, damage, lines of other versions and unknown fields are kept in order."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1"), stamp(1, persona="senior"), turn("m2")]))
    await opened.close()
    ledger = opened.home.ledger
    foreign = [b'{"v":9,"kind":"turn","record":{}}\n', b"damage\n"]
    newer = encode(turn("m3")).replace(b'"source"', b'"flavour":{"of":"tomorrow"},"source"')
    ledger.write_bytes(ledger.read_bytes() + b"".join(foreign) + newer)
    pipeline = await opened()
    before = lines(pipeline)
    assert await reclassify(pipeline) == 3
    after = lines(pipeline)
    kinds = [json.loads(line).get("kind") if line.startswith(b"{") else None for line in after]
    assert kinds == ["turn", "stamp", "turn", "turn", None, "turn"]
    assert [after[1], after[3], after[4]] == [before[1], before[3], before[4]]
    assert json.loads(after[5])["record"]["flavour"] == {"of": "tomorrow"}
    assert json.loads(after[5])["record"]["activity"] == "exploration"


async def test_what_was_pruned_is_not_missed(opened: Opened) -> None:
    """Word classes in the ledger outlive the prompt, so labels can be computed without content."""
    pipeline = await opened()
    await pipeline.commit(
        Batch(
            entries=[turn(ts=at(1), tool_calls=(), prompt_words=("planning",), prompt_id="p1")],
            content=[text("p1", "make a plan", role="user", ts=at(0))],
        )
    )
    await pipeline.forget(["s1"])
    await reclassify(pipeline, force=True)
    assert turns(pipeline)["m1"].activity == "planning"
    assert any(isinstance(e.entry, Prune) for e in pipeline.journal.read())


async def test_the_daemon_goes_on_answering(opened: Opened) -> None:
    """During the rewrite requests are answered, each from either the old or the new labels."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn(f"m{n}", turn_index=n, tool_calls=()) for n in range(3000)]))
    seen: set[tuple[int, int]] = set()
    done = anyio.Event()

    async def ask() -> None:
        sql = "SELECT count(*), count(activity) FROM turns"
        while not done.is_set():
            seen.add(await pipeline.index.ask(lambda db: View(db, None, 0).rows(sql)[0]))  # type: ignore[arg-type]
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        assert await reclassify(pipeline) == 3000
        await anyio.sleep(0.01)
        done.set()
    assert seen == {(3000, 0), (3000, 3000)}
    assert await pipeline.commit(Batch(entries=[turn("more", turn_index=3000)])) == 1


async def test_a_record_is_found_where_the_index_says_it_is(opened: Opened) -> None:
    """Ledger and index change places together: no question ever looks into the one with the other's places."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn(f"m{n}", turn_index=n, tool_calls=()) for n in range(200)]))
    wrong: list[str] = []
    done = anyio.Event()

    def look(db: Any) -> None:
        for name, position, length in db.execute("SELECT message_id, position, length FROM turns"):
            with pipeline.home.ledger.open("rb") as ledger:
                ledger.seek(position)
                if name.encode() not in ledger.read(length):
                    wrong.append(name)

    async def ask() -> None:
        while not done.is_set():
            await pipeline.index.ask(look)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await reclassify(pipeline)
        await anyio.sleep(0.01)
        done.set()
    assert wrong == []


async def test_a_rewrite_that_is_cancelled_leaves_everything(opened: Opened) -> None:
    """A cancelled rewrite leaves the old ledger, the old index and no temporary files."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn(f"m{n}", turn_index=n) for n in range(500)]))
    before = pipeline.home.ledger.read_bytes()
    with anyio.move_on_after(0.0):
        await reclassify(pipeline)
    assert pipeline.home.ledger.read_bytes() == before
    assert sorted(path.name for path in pipeline.home.root.glob("*.new")) == []
    assert await pipeline.commit(Batch(entries=[turn("more")])) == 1


async def test_progress_is_reported(opened: Opened) -> None:
    """Progress is reported and ends at the total."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn(f"m{n}", turn_index=n, model="m" * 500) for n in range(4000)]))
    reports: list[tuple[int, int]] = []
    await reclassify(pipeline, report=lambda done, total: reports.append((done, total)))
    assert reports == sorted(reports)
    assert len(reports) > 2
    assert reports[-1][0] == reports[-1][1]


async def live(home: Path, projects: Path) -> Rig:
    rig = Rig(home, projects)
    await rig.open()
    await rig.read(*rig.files(), pieces_at_once=100)
    await rig.flush()
    return rig


VERSIONS = client_versions()
# The oldest and the newest client in every run; the slow one tries all.
CASES = [
    pytest.param(None, id="own"),
    *(
        pytest.param(version, id=version.name, marks=() if version in (VERSIONS[0], VERSIONS[-1]) else pytest.mark.slow)
        for version in VERSIONS
    ),
]


@pytest.mark.parametrize("which", CASES)
async def test_reclassified_labels_equal_live_ones(tmp_path: Path, which: Path | None) -> None:
    """Of whole trees: forcing changes nothing, and what is taken away comes back."""
    found = [own_tree(tmp_path / "claude")] if which is None else list(which.glob("*/projects"))
    for number, projects in enumerate(found):
        rig = await live(tmp_path / f"home{number}", projects)
        before = lines(rig.pipeline)
        assert await reclassify(rig.pipeline, force=True) == 0
        for strip in (without(*LABELLED), without(*LABELLED, "prompt_words"), without_errors):
            await rig.pipeline.rewrite_ledger(strip)
            if strip is without_errors:
                await rig.pipeline.rewrite_ledger(without(*LABELLED))
            await reclassify(rig.pipeline)
            assert lines(rig.pipeline) == before
        await rig.close()


ASKED = [
    "fix the crash",
    "rename it",
    "add a page",
    "review this",
    "plan it",
    "what if",
    "new error",
    "hello",
    "address",
]
PROMPTS = st.lists(st.sampled_from(ASKED), min_size=1, max_size=3).map(" and ".join)
COMMANDS = st.sampled_from(
    [
        "pytest -q",
        "git status && git commit -m x",
        'echo "npm test"',
        "FOO=1 npm run build | tee log",
        "ls",
        "cat <<E\nx",
    ]
)
PATHS = st.sampled_from(["/p/a.py", "/p/README.md", "/p/docs/x.html", "/p/b.ts"])
CALLS = st.one_of(
    st.tuples(st.just("Bash"), COMMANDS.map(lambda c: {"command": c})),
    st.tuples(st.sampled_from(["Edit", "Write", "Read"]), PATHS.map(lambda p: {"file_path": p})),
    st.tuples(st.sampled_from(["Task", "ExitPlanMode", "Grep", "mcp__x__y"]), st.just({"prompt": "p", "path": "/p"})),
)
ANSWERS = st.tuples(
    st.sampled_from(["ok", "Exit code 2", "Error: Exit code 1", "x" * 2000]), st.sampled_from([None, True, False])
)
TURNS = st.tuples(st.booleans(), st.lists(st.tuples(CALLS, ANSWERS), max_size=3))
SESSIONS = st.lists(st.tuples(PROMPTS, st.lists(TURNS, min_size=1, max_size=4)), min_size=1, max_size=3)


def transcript(session: list[Any]) -> bytes:
    made = Transcript()
    count = 0
    for prompt, responses in session:
        made.prompt(prompt)
        for thinks, calls in responses:
            count += 1
            blocks = [thinking("hm")] if thinks else [said("well")]
            blocks += [call(f"c{count}-{n}", name, **given) for n, ((name, given), _) in enumerate(calls)]
            made.calls(f"m{count}", *blocks, output=count)
            for n, (_, (answer, is_error)) in enumerate(calls):
                made.result(f"c{count}-{n}", answer, is_error=is_error)
    return b"\n".join(made.lines) + b"\n"


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(session=SESSIONS, force=st.booleans())
def test_any_session_is_labelled_as_live(
    tmp_path_factory: pytest.TempPathFactory, session: list[Any], force: bool
) -> None:
    """In any session lost labels are restored, with the words they depend on."""
    folder = tmp_path_factory.mktemp("labels")
    (folder / "projects" / "-p").mkdir(parents=True)
    (folder / "projects" / "-p" / "s.jsonl").write_bytes(transcript(session))

    async def check() -> None:
        rig = await live(folder / "home", folder / "projects")
        try:
            before = turns(rig.pipeline)
            assert {t.activity for t in before.values()} <= set(LABELS)
            await rig.pipeline.rewrite_ledger(without(*LABELLED, "prompt_words", "prompt_retries", "prompt_id"))
            await rig.pipeline.rewrite_ledger(without_errors)
            await reclassify(rig.pipeline, force=force)
            assert turns(rig.pipeline) == before
        finally:
            await rig.close()

    asyncio.run(check())
