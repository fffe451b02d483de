"""Short printable names of folders, sessions, models, harnesses and reasons of cache misses."""

from __future__ import annotations

from burnctl.render.text import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def tilde(path: str) -> str:
    """`~/.relayburn` for a path below the user's folder."""
    import os

    home = os.path.expanduser("~")
    return clean("~" + path[len(home) :] if home != "/" and path.startswith(home + "/") else path)


def last_name(path: object) -> str:
    """`/home/me/work/burnd` is `burnd`."""
    return clean(str(path or "").rstrip("/").rpartition("/")[2])


def distinct_names(paths: Sequence[object]) -> list[str]:
    """The last name of each path; of those that share one, the last two."""
    names = [last_name(path) for path in paths]
    longer = ["/".join(clean(str(path or "").rstrip("/")).split("/")[-2:]) for path in paths]
    return [long if names.count(name) > 1 else name for name, long in zip(names, longer, strict=True)]


def short_id(session_id: object) -> str:
    """The first characters of an id, mostly enough to distinguish sessions."""
    text = clean(session_id or "")
    if text[14:15] == "7" and text[8:9] == text[13:14] == "-":
        return text[:13]  # eight digits of a time are only a minute
    return text[:12] if text.startswith("ses_") else text[:8]


def enough_of_id(session: Mapping[str, Any]) -> str:
    """The unique start of a session's id (`shortId`). Rows of a summary have `key`."""
    session_id = session["sessionId"] if "sessionId" in session else session["key"]
    return max(short_id(session_id), clean(session.get("shortId") or ""), key=len)


def short_model(model: object) -> str:
    """`opus-4-5` for `claude-opus-4-5-20251101`."""
    name = clean(model or "").rpartition("/")[2]
    head, dash, date = name.rpartition("-")
    return (head if dash and len(date) == 8 and date.isdigit() else name).removeprefix("claude-")


def pull_request_name(address: str) -> str:
    """`acme/shop#12` for `https://github.com/acme/shop/pull/12`; other addresses stay."""
    repository, _, number = clean(address).rpartition("/")
    for ending in ("/pull", "/-/merge_requests", "/merge_requests"):
        if repository.endswith(ending) and number.isdigit():
            return f"{repository.removesuffix(ending).partition('://')[2].partition('/')[2]}#{number}"
    return clean(address)


def harness_name(source: object) -> str:
    """`Claude Code` for `claude-code`."""
    from burnd.harness.registry import BY_SOURCE

    product = BY_SOURCE.get(str(source or ""))
    return product.title if product else clean(source or "")


# the groups of causes
GROUP_NAMES = {
    "prefix": "system prompt and tools",
    "files": "file reads",
    "shell": "shell output",
    "edits": "file edits",
    "answers": "answers and thinking",
    "prompts": "your prompts",
    "web": "web pages and searches",
    "mcp": "MCP tools",
    "agents": "subagents",
    "compaction": "compaction summaries",
    "history": "history from before this session",
    "rest": "everything else",
}
# Sentences and short names for the reasons of cache misses: inferred, and proved if the wording differs.
_MISS_SENTENCES = {
    "pause": "the cache expired during a pause",
    "slow-call": "the cache expired while a call ran or waited for permission",
    "prefix": "the start of the context changed, or the provider dropped it",
    "tools": "the list of tools changed",
    "system": "the system prompt changed",
    "settings": "effort, thinking or other settings of the request changed",
    "model-switch": "the request before used another model",
    "compaction": "the context was compacted",
    "rewind": "the conversation went back to an earlier point",
    "edited": "a part in the middle of the context was removed",
    "not-requested": "the request asked for no caching",
    "dropped": "nothing had changed or expired, the provider dropped it",
    "unknown": "the reason is not known",
}
_PROVED_SENTENCES = {
    "prefix": "the system prompt or the tools changed",
    "edited": "an earlier message was changed",
}
_MISS_WORDS = {
    "pause": "expired in a pause",
    "slow-call": "expired in a long call",
    "prefix": "start changed or dropped",
    "tools": "tools changed",
    "system": "system prompt changed",
    "settings": "effort or settings changed",
    "model-switch": "another model",
    "compaction": "after a compaction",
    "rewind": "went back",
    "edited": "changed in the middle",
    "not-requested": "no caching requested",
    "dropped": "dropped by the provider",
    "unknown": "reason not known",
}
_PROVED_WORDS = {"prefix": "system prompt or tools changed", "edited": "earlier message changed"}
_PROVED = "proved"


def miss_sentence(miss: Mapping[str, Any], *, is_short: bool = False) -> str:
    """The reason of a cache miss with the changes in the log: `the list of tools changed (MCP server github
    connected)`."""
    reason = str(miss["reason"] or "")
    sentence = _PROVED_SENTENCES.get(reason) if miss.get("proof") == _PROVED else None
    sentence = sentence or _MISS_SENTENCES.get(reason, clean(reason))
    sentence = miss_words(reason, miss.get("proof")) if is_short else sentence
    details = [change_words(change) for change in miss.get("changes", ())[:3]]
    if (position := miss.get("position")) is not None:
        details.append(f"message {position + 1}")
    if effort := miss.get("effort"):
        details.append(f"effort {clean(effort['before'] or 'default')} to {clean(effort['after'] or 'default')}")
    return f"{sentence} ({', '.join(details)})" if details else sentence


def change_words(change: Mapping[str, Any]) -> str:
    """`MCP server github connected`, `tool WebFetch removed`, `CLAUDE.md changed`."""
    name, is_gone = clean(change["name"]), change.get("removed", False)
    if change["kind"] == "mcp":
        return f"MCP server {name} {'disconnected' if is_gone else 'connected'}"
    if change["kind"] == "memory":
        return f"{last_name(name)} changed"
    return f"tool {name} {'removed' if is_gone else 'added'}"


def remedy(advice: str) -> str:
    """An advice without the reason before it: `answer sooner, or begin a new session after a long break.`"""
    return advice.partition(": ")[2] or advice


def miss_words(reason: str, proof: str | None = None) -> str:
    return (_PROVED_WORDS.get(reason) if proof == _PROVED else None) or _MISS_WORDS.get(reason, reason)
