"""Past sessions as tools for an agent: questions to burnd, with answers short enough to be read by a model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Annotated, Any, Final

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import Field, create_model

from burnctl import flags
from burnctl.client import Client
from burnctl.errors import BurnctlError, Failed
from burnd import __version__, protocol
from burnd.harness.registry import BY_SOURCE, PRODUCTS

MOST_BYTES: Final = 40_000  # of one answer
MOST_HITS, MOST_WINDOW, MOST_MESSAGES, BLOCK_BYTES = 20, 16, 40, 2_000
_NEIGHBOUR_CHARACTERS: Final = 200  # of each message around a hit, if the answer is too long
_LONGEST_ENTRY: Final = MOST_BYTES // 2  # bytes; a longer entry is shown without its text
MOST_CAUSES, MOST_ROWS = 40, 40
_LOOKED_AT: Final = 50  # sessions of a folder, for the caller's own
# Where the harnesses that start this server say which session it is for.
OWN_SESSION: Final = (
    "RELAYBURN_SESSION_ID",
    *(name for product in PRODUCTS for name in product.session_variables),
)
INSTRUCTIONS: Final = (
    "Past coding sessions on this machine, of every harness: what was said in them and what they cost at API prices. "
    "Search first; then read around a hit with session_messages. Nothing here changes anything. Where a session may be "
    "left out, it is the one you are in."
)
_READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

Session = Annotated[str | None, Field(description="A session's id or the beginning of it; your own when left out.")]
Since = Annotated[str | None, Field(description="From then on: 24h, 7d, today, week, month, 2026-11, a date or time.")]
Until = Annotated[str | None, Field(description="Up to then.")]
Project = Annotated[str | None, Field(description="A folder, or a git remote such as github.com/me/it.")]


def server() -> MCPServer[Any]:
    """The server with all its tools. It never starts the daemon."""
    every = (search_sessions, search_memory, session_messages, session_cost, why, summary, hotspots, compare)
    tools = [_tool(function) for function in every]
    return MCPServer("burnd", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING", tools=tools)


def _tool(function: Callable[..., str]) -> Tool:
    """A tool that refuses what it does not know: a filter that is passed over would be taken for one that holds."""
    made = Tool.from_function(function, annotations=_READS, structured_output=False)
    known = made.fn_metadata.arg_model
    strict = create_model(known.__name__, __base__=known, __cls_kwargs__={"extra": "forbid"})
    takes = made.fn_metadata.model_copy(update={"arg_model": strict})
    return made.model_copy(update={"parameters": strict.model_json_schema(by_alias=True), "fn_metadata": takes})


def search_sessions(
    query: Annotated[str, Field(description='Words; "in quotation marks" they must stand so.')],
    project: Project = None,
    source: Annotated[str | None, Field(description=f"A harness: {', '.join(BY_SOURCE)}.")] = None,
    since: Since = None,
    until: Until = None,
    role: Annotated[str | None, Field(description="Who said it: user, assistant, tool_result or system.")] = None,
    tool: Annotated[str | None, Field(description="Calls of this tool and their results.")] = None,
    session: Annotated[str | None, Field(description="Only in this session.")] = None,
    limit: Annotated[int, Field(description=f"How many hits at most, up to {MOST_HITS}.")] = 10,
    before: Annotated[int, Field(description="Messages to show before each hit.")] = 4,
    after: Annotated[
        int, Field(description=f"Messages to show after each hit; {MOST_WINDOW} at most, hit included.")
    ] = 4,
) -> str:
    """Find past conversations by words that were said in them: prompts, answers, tool calls and results, titles."""
    given: dict[str, Any] = {
        "query": query,
        "project": _folder(project),
        "source": source,
        "since": since,
        "until": until,
    }
    given |= {"role": role, "tool": tool, "session": session}
    given |= {"limit": min(max(limit, 1), MOST_HITS), "before": max(before, 0), "after": max(after, 0)}
    sent = {name: value for name, value in given.items() if value is not None}
    return _answered(lambda client: _with_short_neighbours(client.call("sessions.search", sent)))


def _with_short_neighbours(answer: dict[str, Any]) -> dict[str, Any]:
    """Cuts the messages around hits if the answer is too long, so that fewer hits are left out."""
    if _size(answer) > MOST_BYTES:
        for hit in answer["hits"]:
            for item in hit["window"]:
                if not item.get("match") and len(item["snippet"]) > _NEIGHBOUR_CHARACTERS:
                    item["snippet"] = item["snippet"][:_NEIGHBOUR_CHARACTERS] + "\u2026"
                    item["truncated"] = True
    return answer


def search_memory(
    query: Annotated[str, Field(description='Words; a "quoted phrase" must match exactly.')],
    limit: Annotated[int, Field(description=f"How many entries at most, up to {MOST_HITS}.")] = 5,
) -> str:
    """Find whole entries of standing instructions and memories, of the user and of all projects, by their words.

    Instruction files such as CLAUDE.md and AGENTS.md by section, and memory files, as they are now.
    """

    def ask(client: Client) -> dict[str, Any]:
        answer = client.search_memory(query, limit=min(max(limit, 1), MOST_HITS))
        return answer | {"entries": [_short_entry(entry) for entry in answer["entries"]]}

    return _answered(ask)


def _short_entry(entry: dict[str, Any]) -> dict[str, Any]:
    size = len(entry["text"].encode(errors="replace"))
    return entry if size <= _LONGEST_ENTRY else entry | {"text": None, "bytes": size, "note": "too long: read the file"}


def session_messages(
    session: Session = None,
    offset: Annotated[int, Field(description="The number of the first message, as a hit's msgIdx gives it.")] = 0,
    limit: Annotated[int, Field(description=f"How many, up to {MOST_MESSAGES}.")] = 10,
    rail: Annotated[str | None, Field(description="A subagent's conversation instead of the main one.")] = None,
) -> str:
    """Read a page of a session's messages. Long texts are cut and say so; `next` is where the next page begins."""
    most = min(max(limit, 1), MOST_MESSAGES)
    given = {"offset": max(offset, 0), "limit": most, "rail": rail, "blockBytes": BLOCK_BYTES}
    return _asked("sessions.messages", _own(session, "id"), **given)


def session_cost(session: Session = None) -> str:
    """What a session has cost so far at API prices, with its subagents and child sessions, by model."""

    def ask(client: Client) -> dict[str, Any]:
        chosen = _own(session, "id")(client)
        about = client.sessions_meta(chosen["id"])
        by_model = client.call("summary", {"session": about["sessionId"], "by": "model"})
        rows = [{name: row.get(name) for name in ("key", "turns", "usage", "costUsd")} for row in by_model["rows"]]
        kept = ("sessionId", "title", "source", "project", "createdAt", "updatedAt", "turns", "usage", "costUsd")
        return {name: about.get(name) for name in kept} | {"byModel": rows, "backfill": by_model.get("backfill")}

    return _answered(ask)


def why(
    session: Session = None,
    turn: Annotated[
        int | None, Field(description="Only this turn, by its turnIndex: what stood in its context.")
    ] = None,
    rail: Annotated[str | None, Field(description="Of a subagent's conversation instead of the main one.")] = None,
) -> str:
    """What each dollar of a session went to: which results, files and prompts, and how far they rode along.

    The causes add up to the bill; those that cost least stand together as one.
    """
    return _asked("why", _own(session, "session"), turn=turn, rail=rail, limit=MOST_CAUSES)


def summary(
    by: Annotated[str, Field(description="model, day, project, session, source, activity, ...")] = "model",
    since: Since = None,
    until: Until = None,
    project: Project = None,
    session: Annotated[str | None, Field(description="Only this session.")] = None,
) -> str:
    """What was spent at API prices: totals, and rows by what you name."""
    return _asked("summary", by=by, since=since, until=until, project=_folder(project), session=session)


def hotspots(
    by: Annotated[
        str, Field(description="tool, file, command, mcp, skill, subagent, prompt, prefix or cache-miss.")
    ] = "tool",
    since: Since = None,
    until: Until = None,
    project: Project = None,
    session: Annotated[str | None, Field(description="Only this session.")] = None,
) -> str:
    """What the money went to over all sessions: the tools, files, commands, prompts that cost most, and all others."""
    chosen = {"since": since, "until": until, "project": _folder(project), "session": session}
    return _asked("hotspots", by=by, limit=MOST_ROWS, **chosen)


def compare(
    models: Annotated[list[str] | None, Field(description="Only these models.")] = None,
    since: Since = None,
    until: Until = None,
    project: Project = None,
) -> str:
    """Models side by side, by kind of work: cost, one-shot rate, cache, retries."""
    return _asked("compare", models=models, since=since, until=until, project=_folder(project))


def _asked(method: str, own: Callable[[Client], dict[str, Any]] | None = None, /, **params: Any) -> str:
    """The answer to one question; what is None is not sent."""
    given = {name: value for name, value in params.items() if value is not None}
    return _answered(lambda client: client.call(method, given | (own(client) if own is not None else {})))


def _answered(ask: Callable[[Client], dict[str, Any]]) -> str:
    try:
        with Client() as client:
            return bounded(ask(client))
    except BurnctlError as error:
        raise ToolError(f"{error.message}; {error.hint}" if error.hint else error.message) from None


def _own(session: str | None, name: str) -> Callable[[Client], dict[str, Any]]:
    """The session that is meant: the one named, or the caller's own, under the parameter's name."""

    def chosen(client: Client) -> dict[str, Any]:
        named = session or next((os.environ[key] for key in OWN_SESSION if os.environ.get(key)), None)
        return {name: named or _newest_here(client)}

    return chosen


def _newest_here(client: Client) -> str:
    """The session that was written last in this folder: whoever asks is writing to it now.

    Before those of other clones of the same project, and before the sessions that it started itself.
    """
    here = os.getcwd()
    try:
        found = client.sessions_list(project=here, limit=_LOOKED_AT)["sessions"]
    except Failed as error:
        if error.code != protocol.NOT_FOUND:
            raise
        found = []  # nothing was ever written here
    if not found:
        raise ToolError("it cannot be told which session is yours; say session")
    newest = min(found, key=lambda session: (session["project"] != here, session["parentSessionId"] is not None))
    return str(newest["sessionId"])


def _folder(given: str | None) -> str | None:
    return flags.project(given) if given is not None else None


def bounded(answer: dict[str, Any]) -> str:
    """The answer as JSON in at most so many bytes: of its longest list as many as fit, and how many were left out."""
    text = _json(answer)
    left_out: dict[str, int] = {}
    while len(text.encode(errors="replace")) > MOST_BYTES:
        lists = {name: value for name, value in answer.items() if isinstance(value, list) and value}
        if not lists:
            raise ToolError("the answer is too long; ask for less")
        name = max(lists, key=lambda key: len(json.dumps(lists[key])))
        kept = len(lists[name]) * 3 // 4
        if name == "messages" and len(lists[name]) == 1 and lists[name][0].get("blocks"):
            answer = answer | {name: [_with_fewer_blocks(lists[name][0])]}
        else:
            left_out[name] = left_out.get(name, 0) + len(lists[name]) - kept
            answer = answer | {name: lists[name][:kept]}
            if name == "messages" and "offset" in answer:
                answer["next"] = answer["offset"] + kept
        text = _json(answer | {"leftOut": left_out} if left_out else answer)
    return text


def _json(answer: dict[str, Any]) -> str:
    return json.dumps(answer, ensure_ascii=False)


def _size(answer: dict[str, Any]) -> int:
    return len(_json(answer).encode(errors="replace"))


def _with_fewer_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """A message that is too long by itself: a harness may keep an answer with all its calls and results as one."""
    blocks = message["blocks"]
    kept = len(blocks) * 3 // 4
    left_out = message.get("blocksLeftOut", 0) + len(blocks) - kept
    return message | {"blocks": blocks[:kept], "blocksLeftOut": left_out}
