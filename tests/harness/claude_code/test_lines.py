"""Session and rail of a transcript, from its path."""

from __future__ import annotations

import pytest

from burnd.harness.claude_code.lines import AgentMeta, LogPath, meta_path, parse_path, with_meta


def test_a_main_transcript_is_named_after_its_session() -> None:
    assert parse_path("-home-dev/5e55.jsonl") == LogPath(stem="5e55", session_id="5e55")


@pytest.mark.parametrize("folder", ["subagents", "subagents/workflows/wf_1", "subagents/a/b/c"])
def test_a_sub_agent_belongs_to_the_folder_above_subagents(folder: str) -> None:
    place = parse_path(f"-home-dev/5e55/{folder}/agent-a17.jsonl")
    run_id = "wf_1" if folder.endswith("workflows/wf_1") else None
    assert place == LogPath(stem="agent-a17", session_id="5e55", rail_id="a17", run_id=run_id)


@pytest.mark.parametrize("folder", ["-home-dev", "subagents", "-home-dev/subagents", "deep/er"])
def test_an_agent_beside_its_session_names_it_in_its_lines(folder: str) -> None:
    assert parse_path(f"{folder}/agent-1234abcd.jsonl") == LogPath(stem="agent-1234abcd", rail_id="1234abcd")


@pytest.mark.parametrize("path", ["5e55", "subagents/5e55", "memory/5e55", "-home-dev/deep/5e55", "a/b/c/d/5e55"])
def test_a_transcript_may_stand_at_any_depth(path: str) -> None:
    """Format page, rule 1: `projects/**/*.jsonl`, and a project's folder may have any name."""
    assert parse_path(f"{path}.jsonl") == LogPath(stem="5e55", session_id="5e55")


def test_a_mere_word_in_a_folder_of_its_own_names_no_session() -> None:
    """Logs that are all called `chat`, without session ids in their lines, belong to their folders."""
    assert parse_path("-home-dev/5e55/chat.jsonl") == LogPath(stem="5e55", word="chat")
    assert parse_path("-home-dev/chat.jsonl") == LogPath(stem="chat", session_id="chat")


@pytest.mark.parametrize("folders", ["subagents", "memory", "a/b/c"])
def test_so_may_a_sub_agents(folders: str) -> None:
    place = parse_path(f"{folders}/5e55/subagents/agent-a17.jsonl")
    assert place == LogPath(stem="agent-a17", session_id="5e55", rail_id="a17")


@pytest.mark.parametrize(
    "path",
    [
        "-home-dev/memory/notes.jsonl",
        "-home-dev/memory.jsonl",
        "-home-dev/.session-aliases.jsonl",
        "-home-dev/5e55.jsonl.tmp.123",
        "-home-dev/5e55/custom-title.json",
        "-home-dev/5e55/tool-results/x.jsonl",
        "-home-dev/5e55/subagents/journal.jsonl",
        "-home-dev/5e55/subagents/agent-.jsonl",
        "-home-dev/5e55/subagents/agent-a17.meta.json",
        "-home-dev/5e55/subagents/workflows/wf_1.json",
        "-home-dev/.jsonl",
        "",
    ],
)
def test_other_files_are_no_transcripts(path: str) -> None:
    assert parse_path(path) is None


def test_metadata_beside_a_transcript_is_read() -> None:
    place = LogPath(stem="agent-a17", session_id="5e55", rail_id="a17")
    facts = b'{"agentType":"Explore","toolUseId":"t1","parentAgentId":"a3","spawnDepth":2,"new":[]}'
    assert with_meta(place, facts).meta == AgentMeta("Explore", "t1")
    teammate = with_meta(place, b'{"agentType":"reviewer","name":"rev","teamName":"core"}').meta
    assert teammate is not None
    assert (teammate.tool_use_id, teammate.teammate_id) == (None, "rev@core")
    assert with_meta(place, b'{"agentType":7,"toolUseId":"t1"}').meta == AgentMeta(None, "t1")
    assert with_meta(place, b'{"agentType":"Expl') == place


def test_only_an_agents_transcript_has_facts_beside_it() -> None:
    assert meta_path("-p/5e55/subagents/agent-a17.jsonl") == "-p/5e55/subagents/agent-a17.meta.json"
    assert meta_path("-p/5e55.jsonl") is None
