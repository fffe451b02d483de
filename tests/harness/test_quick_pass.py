"""The quick pass has the same totals as the full read, on every kind of log."""

from __future__ import annotations

import io
import random
import shutil
from pathlib import Path

import msgspec
import pytest
import zstandard

from burnd.harness.product import RESTORED
from burnd.harness.quick_pass import LogTask, lines_in
from tests.bench.corpus import Tree
from tests.capture.adversary import World
from tests.capture.codex_logs import all_cases
from tests.capture.opencode_rig import OpenCodeRig
from tests.capture.opencode_traces import samples, write_sessions
from tests.capture.rig import CodexRig, Rig
from tests.capture.trees import CASES, trees, write
from tests.faults import hostile
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.harness.collect import cases
from tests.harness.opencode.data import SCHEMAS, Writer
from tests.harness.opencode.stories import write_all_stories
from tests.harness.scanning import claude_logs, codex_logs, differences, opencode_logs, totals_in, totals_of
from tests.make import seeds
from tests.queries.corpora import CLAUDE_OPTIONS, Corpora, needs_claude_corpus, needs_opencode_corpus


async def same_totals(rig: Rig, tasks: list[LogTask]) -> None:
    """Reads all logs in full, and compares what every report adds up."""
    await rig.open()
    await rig.read(*rig.files(), pieces_at_once=8)
    await rig.flush()
    full = await totals_in(rig.pipeline.index)
    await rig.close()
    assert full["model"]["totals"]["turns"]
    assert differences(await totals_of(tasks), full) == []


async def same_as_claude_logs(tmp_path: Path, projects: Path) -> None:
    await same_totals(Rig(tmp_path / "home", projects), claude_logs(projects))


async def same_as_databases(tmp_path: Path, folder: Path) -> None:
    rig = OpenCodeRig(tmp_path / "home", folder)
    await rig.open()
    await rig.settle()
    full = await totals_in(rig.pipeline.index)
    await rig.close()
    assert full["model"]["totals"]["turns"]
    assert differences(await totals_of(opencode_logs(folder)), full) == []


@pytest.mark.parametrize("which", CASES)
async def test_logs_of_every_release_of_claude_code(tmp_path: Path, which: Path | None) -> None:
    """Forks, agents, compactions, running totals, requests without a response, web searches, lines without ids."""
    for projects in trees(tmp_path, which):
        await same_as_claude_logs(tmp_path / projects.parent.name, projects)


@seeds(2, 60)
async def test_any_mixture_of_logs(tmp_path: Path, seed: int) -> None:
    World(seed).write(tmp_path / "projects")
    await same_as_claude_logs(tmp_path, tmp_path / "projects")


@seeds(1, 12)
async def test_logs_that_were_cut_or_damaged(tmp_path: Path, seed: int) -> None:
    """Ends that are missing, lines that are no JSON, bytes that are no text, a copy of a folder."""
    rng, projects = random.Random(seed), tmp_path / "projects"
    World(seed).write(projects)
    for path in sorted(projects.rglob("*.jsonl")):
        lines = path.read_bytes().splitlines(keepends=True)
        for n in rng.sample(range(len(lines)), len(lines) // 6):
            line = lines[n]
            lines[n] = rng.choice(
                [
                    line[: rng.randrange(len(line))] + b"\n",
                    line.replace(b'"text"', b'"te\xff\xfext"'),
                    line.replace(b'"type"', b'"type" '),
                    line.replace(b'"output_tokens":', b'"output_tokens":"', 1).replace(
                        b'"output_tokens":"', b'"x":1,"output_tokens":', 1
                    ),
                    b"\0\0" + line,
                    line.replace(b'"id":"', b'"id":"\\ud800', 1),
                    b"\xef\xbb\xbf" + line,
                    b"\n \n" + line,
                ]
            )
        path.write_bytes(b"".join(lines))
    first = min(projects.iterdir())
    shutil.copytree(first, projects / "-copy")
    await same_as_claude_logs(tmp_path, projects)


@pytest.mark.parametrize("kind", sorted(hostile.claude_logs(0.05)))
async def test_lines_that_are_made_to_take_memory(tmp_path: Path, kind: str) -> None:
    session, projects = "33333333-0000-4000-8000-000000000003", tmp_path / "projects"
    log = Transcript(session=session, prefix="h")
    log.prompt("go")
    log.says("m1", text("well"), output=5)
    (projects / "-p").mkdir(parents=True)
    write(projects / "-p" / f"{session}.jsonl", log)
    with (projects / "-p" / f"{session}.jsonl").open("ab") as file:
        file.write(hostile.claude_logs(0.05)[kind](session))
    await same_as_claude_logs(tmp_path, projects)


async def test_requests_and_searches(tmp_path: Path) -> None:
    """A request that got no response, one that was refused, and searches that only a result counts."""
    session, project = "44444444-0000-4000-8000-000000000004", tmp_path / "projects" / "-p"
    project.mkdir(parents=True)
    log = Transcript(session=session, prefix="r")

    def request(name: str, second: int, **more: object) -> None:
        params = {"model": "claude-opus-5-5", "max_tokens": 9}
        log.bare(type="api-request", id=name, sessionId=session, timestamp=log.time(second), params=params, **more)

    log.prompt("first")
    request("q1", 1, tail=[{}])
    log.says("m1", text("a"), output=7, requestRef="q1", usage={"input_tokens": 500, "output_tokens": 7})
    log.prompt("second")
    request("q2", 5, base="q1", keep=1, tail=[{}])
    log.prompt("third, since nothing came")
    request("q3", 9, base="q1", keep=1, tail=[{}])
    log.add("system", subtype="api_error", error={"status": 529})
    request("q4", 11, base="q1", keep=1, tail=[{}])
    log.calls("m2", call("w1", "WebSearch", query="weather"), output=9, requestRef="q4")
    log.result("w1", "rain", toolUseResult={"searchCount": 3})
    request("q5", 20)
    write(project / f"{session}.jsonl", log)
    await same_as_claude_logs(tmp_path, tmp_path / "projects")


async def test_a_tree_of_many_sessions(tmp_path: Path) -> None:
    """The benchmark's: forks, agents, growing usage, messages without request ids, torn last lines."""
    Tree(tmp_path).grow(1_500_000)
    await same_as_claude_logs(tmp_path, tmp_path / "projects")


@needs_claude_corpus
@pytest.mark.parametrize("options", CLAUDE_OPTIONS)
async def test_a_generated_tree(tmp_path: Path, corpora: Corpora, options: list[str]) -> None:
    tree, _ = corpora.claude(options)
    await same_as_claude_logs(tmp_path, tree / "projects")


async def test_codex_logs_of_every_release(tmp_path: Path) -> None:
    """Forks, agents, logs without tasks, usage records, compactions, and a compressed copy of each."""
    sessions = all_cases(tmp_path / "codex")
    tasks = codex_logs(sessions)
    await same_totals(CodexRig(tmp_path / "home", sessions), tasks)
    plain = await totals_of(tasks)
    for path in sorted(sessions.rglob("*.jsonl")):
        path.with_name(f"{path.name}.zst").write_bytes(zstandard.compress(path.read_bytes()))
    assert differences(await totals_of(codex_logs(sessions)), plain) == []


@pytest.mark.parametrize("schema", sorted(SCHEMAS))
async def test_every_story_of_opencode(tmp_path: Path, schema: str) -> None:
    (tmp_path / "data").mkdir()
    write_all_stories(tmp_path / "data", schema)
    await same_as_databases(tmp_path, tmp_path / "data")


@seeds(1, 20)
async def test_databases_with_forks_of_forks(tmp_path: Path, seed: int) -> None:
    writer = Writer(tmp_path / "data" / "opencode.db")
    write_sessions(writer, random.Random(seed), 30)
    await same_as_databases(tmp_path, tmp_path / "data")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == sorted(
        path.name for path in (tmp_path / "data").glob("opencode.db*")
    )
    writer.close()


@pytest.mark.parametrize("sample", cases(samples()), ids=lambda path: path.parent.name)
async def test_real_databases(tmp_path: Path, sample: Path) -> None:
    (tmp_path / "data").mkdir()
    shutil.copyfile(sample, tmp_path / "data" / "opencode.db")
    await same_as_databases(tmp_path, tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["opencode.db"]


@needs_opencode_corpus
async def test_a_generated_database(tmp_path: Path, corpora: Corpora) -> None:
    corpora.opencode(tmp_path / "data" / "opencode.db")
    await same_as_databases(tmp_path, tmp_path / "data")


async def test_several_processes_read_what_one_does(tmp_path: Path) -> None:
    Tree(tmp_path).grow(500_000)
    tasks = claude_logs(tmp_path / "projects")
    apart = [task._replace(size=task.size << 10) for task in tasks]
    assert differences(await totals_of(apart, processes=2), await totals_of(tasks)) == []


async def test_restored_lines_are_not_billed_again(tmp_path: Path) -> None:
    """What a session continues with after `burnctl restore` counts, the lines before it do not."""
    log = Transcript()
    log.prompt("hello")
    log.says("msg_a1", text("hi"))
    restored = [line.removesuffix(b"}") + b"," + RESTORED.removeprefix(b"{") for line in log.lines]
    log.prompt("and now?")
    log.says("msg_a2", text("more"))
    lines = [*restored, *log.lines[len(restored) :]]
    folder = tmp_path / "projects" / "-p"
    folder.mkdir(parents=True)
    (folder / "session.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    await same_as_claude_logs(tmp_path, tmp_path / "projects")
    assert (await totals_of(claude_logs(tmp_path / "projects")))["model"]["totals"]["turns"] == 1


def test_lines_are_those_that_a_growing_file_has() -> None:
    """A last line counts once complete; blank lines are ignored."""
    whole, torn = b'{"a":1}', b'{"a":'
    assert list(lines_in(io.BytesIO(whole + b"\n\n \n" + whole))) == [(0, whole + b"\n"), (11, whole)]
    assert list(lines_in(io.BytesIO(whole + b"\n" + torn))) == [(0, whole + b"\n")]
    assert list(lines_in(io.BytesIO(msgspec.json.encode([1])))) == []
