"""Past sessions as tools for an agent, with answers short enough for a model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import Field, ValidationError, create_model

from burnctl import flags
from burnctl.client import Client
from burnctl.errors import BurnctlError, Failed
from burnctl.suggestions import near
from burnd import __version__, protocol
from burnd.contract import Param, Params
from burnd.contract import reports as report
from burnd.contract import sessions as session
from burnd.harness.registry import PRODUCTS
from burnd.paths import working_folder

MOST_BYTES: Final = 40_000  # of one answer
BRIEF_BYTES: Final = 2_500  # of one without `full` or a limit
MOST_MESSAGES, BLOCK_BYTES = 40, 2_000
_NEIGHBOUR_CHARACTERS: Final = 200  # of each message around a hit in a long answer
_BRIEF_CHARACTERS: Final = 120  # of each message around a hit in a brief answer
_MATCH_CHARACTERS: Final = 300  # of the message that matches
_BRIEF_AROUND: Final = 4  # messages around a hit at most in a brief answer
_BRIEF_HITS: Final = 3  # that must fit before messages around them are added
_HINT_BYTES: Final = 300  # for the query, the hint and the number of hits left out
_BRIEF_BLOCK_BYTES: Final = 400  # of a text or result in a brief page of messages
_LONGEST_ENTRY: Final = MOST_BYTES // 2  # bytes; a longer entry is shown without its text
_DIGITS: Final = 4
_FOLDER_SESSIONS: Final = 50  # searched for the caller's own
# Variables in which harnesses pass the id of the session that started this server.
OWN_SESSION: Final = (
    "RELAYBURN_SESSION_ID",
    *(name for product in PRODUCTS for name in product.session_variables),
)
INSTRUCTIONS: Final = (
    "Past coding sessions on this machine, of every harness: what was said in them and what they cost at API prices. "
    "Search first; then read around a hit with session_messages. Nothing here changes anything. If session is left "
    "out, it is the one you are in."
)
_READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
# Fields that a model does not need.
_DROPPED: Final = {
    *("version", "filters", "newest", "emptyTurns", "partialTurns", "harnessTurns"),
    *("series", "parts", "agents", "oneShotTurnRate", "oneShotTurns", "editTurns", "pricedTurns", "minSample"),
    *("projectKey", "createdBy", "contentMode", "content", "matchesInSession", "score"),
}
# Fields of rows in full answers alone.
_FULL_ONLY: Final = {
    *("usage", "openTurns", "unpricedTurns", "shortId", "rank", "severities", "categories", "harnessModels"),
    *("entered", "rideTokens", "editPrompts", "oneShotPrompts", "messageCount", "truncated", "highlights", "railId"),
    *("messageId", "calls", "notes", "insufficientPrompts", "oneShotRate"),
}
_NAME_CHARACTERS: Final = 60  # of a wrong argument, in an error
_KINDS: Final = {"string": "a text", "integer": "a whole number", "boolean": "true or false", "array": "a list"}
_TIME: Final = ("since", "until", "project")
_FULL: Final = "Give a long answer: all fields and texts, up to 40 kB instead of about 2 kB."


class Offer(NamedTuple):
    """A tool: a method, the parameters that an agent may give, and values for others."""

    name: str
    about: str
    method: type[Params]
    takes: tuple[str, ...]
    usual: Mapping[str, Any] = {}
    own: str = ""  # the parameter that is the caller's session by default
    more: str = ""  # how to get more, if the answer was cut
    shaped: Callable[[Client, dict[str, Any]], dict[str, Any]] = lambda _, answer: answer


def _shorter_neighbours(_: Client, answer: dict[str, Any]) -> dict[str, Any]:
    """Cuts the messages around hits if the answer is too long, so that more hits fit."""
    if len(_json(answer).encode(errors="replace")) > MOST_BYTES:
        for hit in answer["hits"]:
            for item in hit["window"]:
                if not item.get("match") and len(item["snippet"]) > _NEIGHBOUR_CHARACTERS:
                    item["snippet"] = item["snippet"][:_NEIGHBOUR_CHARACTERS] + "\u2026"
                    item["truncated"] = True
    return answer


def _brief(value: Any, *, is_row: bool = False) -> Any:
    """A compact answer without rarely needed fields; totals stay whole."""
    if isinstance(value, list):
        return [_brief(item, is_row=True) for item in value]
    if not isinstance(value, dict):
        return value
    dropped = _FULL_ONLY if is_row else _FULL_ONLY - {"usage"}
    fields = {key: _brief(item, is_row=is_row) for key, item in value.items() if key not in dropped}
    return {key: item for key, item in fields.items() if item is not False or key == "done"}


def _shorten_matches(hits: list[dict[str, Any]]) -> None:
    for item in (item for hit in hits for item in hit["window"] if item.get("match")):
        text, marks = item["snippet"], item.get("highlights")
        begin = max(marks[0][0] - _MATCH_CHARACTERS // 3, 0) if marks else 0
        end = begin + _MATCH_CHARACTERS
        item["snippet"] = ("\u2026" if begin else "") + text[begin:end] + ("\u2026" if end < len(text) else "")


def _brief_windows(hits: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """The hits with the start of the messages around them: as many as let `_BRIEF_HITS` hits fit in `room` bytes."""

    def window(items: list[dict[str, Any]], around: int) -> list[dict[str, Any]]:
        at = next((n for n, item in enumerate(items) if item.get("match")), 0)
        near = items[max(at - around, 0) : at + around + 1]
        return [item if item.get("match") else item | {"snippet": start(item["snippet"])} for item in near]

    def start(text: str) -> str:
        return text if len(text) <= _BRIEF_CHARACTERS else text[:_BRIEF_CHARACTERS] + "\u2026"

    brief = hits
    for around in range(_BRIEF_AROUND, 0, -1):
        brief = [hit | {"window": window(hit["window"], around)} for hit in hits]
        if len(json.dumps(brief[:_BRIEF_HITS], ensure_ascii=False).encode(errors="replace")) <= room:
            break
    return brief


def _shorter_entries(_: Client, answer: dict[str, Any]) -> dict[str, Any]:
    def short(entry: dict[str, Any]) -> dict[str, Any]:
        size = len(entry["text"].encode(errors="replace"))
        is_long = size > _LONGEST_ENTRY
        return entry | {"text": None, "bytes": size, "note": "too long: read the file"} if is_long else entry

    return answer | {"entries": [short(entry) for entry in answer["entries"]]}


def _by_model(client: Client, answer: dict[str, Any]) -> dict[str, Any]:
    rows = client.ask(report.SummaryParams, {"session": answer["sessionId"], "by": "model"})["rows"]
    names = ("sessionId", "title", "source", "project", "createdAt", "updatedAt", "turns", "usage", "costUsd")
    by_model = ("key", "turns", "costUsd", "harnessCostUsd")
    facts = {name: answer.get(name) for name in (*names, "harnessCostUsd", "backfill")}
    return facts | {"byModel": [{name: row.get(name) for name in by_model} for row in rows]}


def _without_own_id(_: Client, answer: dict[str, Any]) -> dict[str, Any]:
    own = answer.get("sessionId")
    causes = [one | {"sessionId": None} if one.get("sessionId") == own else one for one in answer.get("causes", ())]
    return {**answer, "causes": causes}


def _without_repetition(_: Client, answer: dict[str, Any]) -> dict[str, Any]:
    """Removes advice and session from causes that repeat them."""
    kinds = [{name: value for name, value in one.items() if name != "advice"} for one in answer["kinds"]]
    findings = [
        {**one, "evidence": {**one["evidence"], "sessionId": None}} if one["sessions"] else one
        for one in answer["findings"]
    ]
    return {**answer, "kinds": kinds, "findings": findings}


def _with_data(_: Client, answer: dict[str, Any]) -> dict[str, Any]:
    """A comparison without cells that have too few requests."""
    cells = [one for one in answer["cells"] if not one.get("noData") and not one.get("insufficientSample")]
    return {**answer, "cells": cells, "cellsWithFewRequests": len(answer["cells"]) - len(cells)}


OFFERS: Final = (
    Offer(
        "search_sessions",
        "Find past conversations by the words in them: prompts, answers, tool calls and results, titles.",
        session.SearchParams,
        (
            "query",
            "project",
            "source",
            "since",
            "until",
            "role",
            "tool",
            "session",
            "limit",
            "offset",
            "before",
            "after",
        ),
        more="session_messages reads on around a hit, from its msgIdx; give next as offset for more hits",
        shaped=_shorter_neighbours,
    ),
    Offer(
        "search_memory",
        "Find whole entries of standing instructions and memories (CLAUDE.md, AGENTS.md, memory files) by their words.",
        session.MemoryParams,
        ("query", "limit"),
        {"limit": 5},
        shaped=_shorter_entries,
    ),
    Offer(
        "list_sessions",
        "List past sessions, the one written last first, with title, project and cost.",
        session.ListParams,
        ("project", "source", "since", "until", "agent", "gone", "limit", "next"),
        {"limit": 10, "costs": True},
        more="give next for the next page",
    ),
    Offer(
        "session_messages",
        "Read a page of a session's messages. Long texts are cut; `next` is the offset of the next page.",
        session.MessagesParams,
        ("id", "offset", "limit", "rail"),
        {"limit": 10, "block_bytes": BLOCK_BYTES},
        own="id",
        more="give next as offset",
    ),
    Offer(
        "session_cost",
        "What a session has cost so far at API prices, with its subagents and child sessions, by model.",
        session.MetaParams,
        ("id",),
        own="id",
        shaped=_by_model,
    ),
    Offer(
        "why",
        "What a session was spent on: groups and largest causes, which add up to its cost, and why its cache missed.",
        report.WhyParams,
        ("session", "turn", "rail", "limit"),
        {"limit": 8},
        own="session",
        more="a larger limit lists more causes",
        shaped=_without_own_id,
    ),
    Offer(
        "waste",
        "Where money could be saved: spending that could have been avoided, with evidence and advice.",
        report.WasteParams,
        (*_TIME, "session", "kind", "limit"),
        {"limit": 5, "per_kind": 1},
        more="kind and a larger limit list more findings",
        shaped=_without_repetition,
    ),
    Offer(
        "limits",
        "How much of the plan's windows and of the budgets is used, when they reset, how often limits were reached, "
        "and with `filled` what filled them.",
        report.LimitsParams,
        ("source", "filled"),
        {"history": 0},
    ),
    Offer(
        "summary",
        "What was spent at API prices: totals, and rows by what you name.",
        report.SummaryParams,
        ("by", *_TIME, "session", "limit"),
        {"limit": 10},
        more="a larger limit lists more rows",
    ),
    Offer(
        "hotspots",
        "What the money was spent on over all sessions: tools, files, commands, prompts. The rows add up to the bill.",
        report.HotspotsParams,
        ("by", *_TIME, "session", "limit"),
        {"limit": 10},
        more="a larger limit lists more rows",
    ),
    Offer(
        "compare",
        "Compare models by kind of work: cost per request, first-try rate, cache.",
        report.CompareParams,
        ("models", *_TIME),
        shaped=_with_data,
    ),
)


def server() -> MCPServer[Any]:
    """The server with its tools. It never starts the daemon."""
    tools = [_tool(offer) for offer in OFFERS]
    return _Server("burnd", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING", tools=tools)


class _Server(MCPServer[Any]):
    """Answers an unknown tool with the nearest name."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        names = [offer.name for offer in OFFERS]
        if name not in names:
            hint = near(name, names, f"there are: {', '.join(names)}")
            raise ToolError(f"unknown tool {name[:_NAME_CHARACTERS]!r}; {hint}")
        return await super().call_tool(name, arguments, context)


class _CheckedTool(Tool):
    """Names a wrong argument and what it may be."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            raise ToolError(self._explained(error)) from None
        return await super().run(arguments, context, convert_result)

    def _explained(self, error: ValidationError) -> str:
        first = error.errors(include_url=False)[0]
        name, fields = str(first["loc"][0])[:_NAME_CHARACTERS], self.parameters["properties"]
        if first["type"] == "missing":
            return f"{name} is missing; it is: {fields[name]['description']}"
        if name not in fields:
            hint = near(name, fields, f"it takes: {', '.join(fields)}")
            return f"unknown parameter {name!r}; {hint}"
        kinds = fields[name].get("anyOf") or [fields[name]]
        choices = [choice for kind in kinds for choice in kind.get("enum", ())]
        value = str(first["input"])[:_NAME_CHARACTERS]
        if choices:
            hint = near(value, choices, f"{name} is one of: {', '.join(choices)}")
            return f"{name} cannot be {value!r}; {hint}"
        types = " or ".join(_KINDS.get(kind.get("type"), "null") for kind in kinds if kind.get("type") != "null")
        return f"{name} must be {types}, not {value!r}"


def _tool(offer: Offer) -> Tool:
    """Rejects unknown parameters: an ignored filter would give a wrong answer."""

    def run(**given: Any) -> str:
        is_full = bool(given.pop("full", False))
        params = {**offer.usual, **{name: value for name, value in given.items() if value is not None}}
        usual = {
            name: offer.usual.get(name, offer.method.params[name].default)
            for name in ("limit", "before", "after")
            if name in offer.takes
        }
        is_brief = not is_full and all(params.get(name, value) == value for name, value in usual.items())
        if is_brief and "block_bytes" in params:
            params["block_bytes"] = _BRIEF_BLOCK_BYTES
        for one in (offer.method.params[name] for name in offer.takes if isinstance(params.get(name), int)):
            params[one.name] = max(params[one.name], int(one.least or 0))
            if one.name == "limit":
                params[one.name] = min(params[one.name], int(_most(one)))
        if params.get("project") is not None:
            params["project"] = flags.project(params["project"])
        try:
            with Client() as client:
                if offer.own:
                    params[offer.own] = params.pop("session", None) or _own_session(client)
                answer = offer.shaped(client, client.ask(offer.method, params))
        except BurnctlError as error:
            raise ToolError(f"{error.message}; {error.hint}" if error.hint else error.message) from None
        more = "; ".join(filter(None, [offer.more, "" if is_full else "full: true gives all fields"]))
        short = compact(answer)
        if is_brief:
            _shorten_matches(short.get("hits", []))
        short = short if is_full else _brief(short)
        if is_brief and short.get("hits"):
            short["hits"] = _brief_windows(short["hits"], BRIEF_BYTES - _HINT_BYTES)
        return bounded(short, more, BRIEF_BYTES if is_brief else MOST_BYTES, params.get("offset") or 0)

    tool = _CheckedTool.from_function(
        run, name=offer.name, description=offer.about, annotations=_READS, structured_output=False
    )
    fields: dict[str, Any] = {
        "session" if name == offer.own else name: _field(offer, offer.method.params[name]) for name in offer.takes
    }
    fields["full"] = (bool, Field(default=False, description=_FULL))
    base = tool.fn_metadata.arg_model.__mro__[1]
    model: Any = create_model(offer.name, __base__=base, __cls_kwargs__={"extra": "forbid"}, **fields)
    takes = tool.fn_metadata.model_copy(update={"arg_model": model})
    return tool.model_copy(update={"parameters": model.model_json_schema(by_alias=True), "fn_metadata": takes})


def _field(offer: Offer, one: Param) -> tuple[Any, Any]:
    types = {"bool": bool, "int": int, "float": float, "str": str, "list[str]": list[str]}
    parts = [types[part] for part in one.type.split(" | ") if part in types]
    kind: Any = parts[-1] if one.kind in ("time", "models") else parts[0]
    about = one.help[:1].upper() + one.help[1:]
    if one.choices:
        kind = Literal[one.choices]
        if one.others:
            dimension = "|".join((*report.DIMENSIONS, "tag:[^,]+"))
            causes = "|".join(cause for cause in one.choices if cause != "prompt")  # prompts have no second dimension
            two = (
                f"^(tag:[^,]+|({dimension}),({dimension}))$"
                if one.others == report.TAG
                else f"^({causes}),({dimension})$"
            )
            kind |= Annotated[str, Field(pattern=two)]
    if one.name == offer.own:
        return kind | None, Field(default=None, description=f"{about}; your own when left out.")
    if one.is_required:
        return kind, Field(description=f"{about}.")
    default = offer.usual.get(one.name, one.default)
    bound = f", up to {_most(one):g}" if one.most is not None else ""
    return (kind | None if default is None else kind), Field(default=default, description=f"{about}{bound}.")


def _most(one: Param) -> float:
    return min(float(one.most or 0), MOST_MESSAGES) if one.name == "limit" else float(one.most or 0)


def _own_session(client: Client) -> str:
    """The caller's session: the one its harness names, else the newest one of this folder.

    Sessions of this folder come before those of other clones, and before those that they started.
    """
    if named := next((os.environ[key] for key in OWN_SESSION if os.environ.get(key)), None):
        return named
    here = working_folder() or "/"
    try:
        found = client.ask(session.ListParams, {"project": here, "limit": _FOLDER_SESSIONS})["sessions"]
    except Failed as error:
        if error.code != protocol.NOT_FOUND:
            raise
        found = []
    if not found:
        raise ToolError("it is not clear which session is yours; give session")
    newest = min(found, key=lambda one: (one["project"] != here, one["parentSessionId"] is not None))
    return str(newest["sessionId"])


def compact(value: Any, name: str = "") -> Any:
    """A value without empty fields, with four significant digits; zeros of usage and evidence are left out."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, list):
        return [compact(item) for item in value]
    if not isinstance(value, dict):
        return value
    items = {key: compact(item, key) for key, item in value.items() if key not in _DROPPED}
    if (items.get("backfill") or {}).get("done"):
        items["backfill"] = {"done": True}
    empty: tuple[Any, ...] = (None, "", [], {}, 0) if name in ("usage", "evidence") else (None, "", [], {})
    return {key: item for key, item in items.items() if isinstance(item, bool) or item not in empty}


def bounded(answer: dict[str, Any], more: str = "", most: int = MOST_BYTES, start: int = 0) -> str:
    """The answer as JSON of at most so many bytes, with the number of items left out of its longest list.

    A brief answer has at least one item of each list. `hint` names the way to more. `start` is the number of the first
    hit.
    """
    left_out: dict[str, int] = {}
    is_cut = bool(more) and any(answer.get(name) for name in ("next", "moreRows", "moreFindings", "leftOut"))
    answer = answer | {"hint": more} if is_cut else answer
    text = _json(answer)
    while len(text.encode(errors="replace")) > most:
        least = 0 if most == MOST_BYTES else 1
        lists = {name: value for name, value in answer.items() if isinstance(value, list) and len(value) > least}
        if not lists and most < MOST_BYTES:
            return bounded(answer, more, start=start)
        if not lists:
            raise ToolError("the answer is too long; narrow the filters or give a smaller limit")
        name = max(lists, key=lambda key: len(json.dumps(lists[key])))
        count = len(lists[name]) * 3 // 4
        if name == "messages" and len(lists[name]) == 1 and lists[name][0].get("blocks"):
            # an answer with all its calls and results may be a single message
            message, blocks = lists[name][0], lists[name][0]["blocks"]
            most_blocks = len(blocks) * 3 // 4
            missing = message.get("blocksLeftOut", 0) + len(blocks) - most_blocks
            answer = answer | {name: [message | {"blocks": blocks[:most_blocks], "blocksLeftOut": missing}]}
        else:
            left_out[name] = left_out.get(name, 0) + len(lists[name]) - count
            answer = answer | {name: lists[name][:count]}
            if name == "hits" or (name == "messages" and "offset" in answer):
                answer["next"] = answer.get("offset", start) + count
            elif name == "sessions":  # `next` would skip the rest of this page
                answer.pop("next", None)
        answer |= {"leftOut": left_out, **({"hint": more} if more else {})} if left_out else {}
        text = _json(answer)
    return text


def _json(answer: dict[str, Any]) -> str:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
