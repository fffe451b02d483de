"""How a conversation reads in a terminal: who says what, calls and thoughts in a line each, costs in the margin."""

from __future__ import annotations

from burnctl.render.names import short_model
from burnctl.render.numbers import clock, day, money, number, size
from burnctl.render.paragraphs import lines_of
from burnctl.render.text import clean, cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from burnctl.render.screen import Screen

_MARGIN = 10
_ROLES = {"user": "bold cyan", "assistant": "bold green", "system": "bold yellow", "tool_result": "bold magenta"}
_CALL, _RESULT, _THOUGHT, _FILE = "▸", "◂", "∴", "+"
_TOLD_FIRST = ("file_path", "filePath", "notebook_path", "path", "command", "pattern", "query", "url", "description")


class Transcript:
    """Draws messages as `sessions.messages` gives them; a day is named when it begins."""

    def __init__(self, screen: Screen, *, raw: bool = False) -> None:
        self._screen = screen
        self._raw = raw
        self._room = max(screen.width - _MARGIN, 20)
        self._day = ""

    def drawn(self, messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Lines, message by message."""
        for message in messages:
            yield from self._message(message)

    def _message(self, message: Mapping[str, Any]) -> Iterator[str]:
        if (today := day(message["ts"])) != self._day:
            self._day = today
            yield ""
            yield self._screen.paint(f"{'':{_MARGIN}}{today}", "dim")
        # Results belong to the calls above them: they have no head of their own.
        if message["role"] != "tool_result" or self._raw:
            yield ""
            yield from self._head(message)
        for block in message["blocks"]:
            for line in self._block(block):
                yield f"{'':{_MARGIN}}{line}".rstrip()
        if message.get("blocksLeftOut"):
            yield f"{'':{_MARGIN}}… and {message['blocksLeftOut']:,} more blocks"

    def _head(self, message: Mapping[str, Any]) -> Iterator[str]:
        turn = message.get("turn") or {}
        cost = money(turn.get("costUsd")) if turn else ""
        margin = f"{cost:>{_MARGIN - 2}}  "
        about = [short_model(turn["model"]), _tokens(turn)] if turn else []
        rest = " · ".join([*filter(None, about), clock(message["ts"]), f"#{message['msgIdx']}"])
        role = message["role"].replace("_", " ")
        told = cut(clean(f" · {rest}"), self._room - len(role))
        head = self._screen.paint(role, _ROLES.get(message["role"], "bold"))
        yield (self._screen.paint(margin, "yellow") + head + self._screen.paint(told, "dim")).rstrip()

    def _block(self, block: Mapping[str, Any]) -> Iterator[str]:
        is_cut = bool(block.get("truncated"))
        if block.get("lost"):
            yield self._screen.paint(f"[{block['kind']}: {block['lost']} on disk]", "red")
        elif "toolUse" in block:
            yield from self._call(block["toolUse"], is_cut=is_cut)
        elif "toolResult" in block:
            yield from self._result(block["toolResult"], is_cut=is_cut)
        elif "file" in block and not block.get("text"):
            yield self._screen.paint(f"{_FILE} {_file(block['file'])}", "magenta")
        elif block["kind"] == "thinking" and not self._raw:
            yield self._folded(_THOUGHT, "thinking", block.get("text") or "", "dim")
        else:
            yield from self._whole(block.get("text") or "", is_cut=is_cut)

    def _whole(self, text: str, *, is_cut: bool) -> Iterator[str]:
        yield from lines_of(text, self._room)
        if is_cut:
            yield self._screen.paint("… cut here; it goes on", "dim")

    def _call(self, use: Mapping[str, Any], *, is_cut: bool) -> Iterator[str]:
        if not self._raw:
            yield self._folded(_CALL, use["name"], _told(use.get("input")), "blue", with_size=False)
            return
        yield self._screen.paint(f"{_CALL} {clean(use['name'])}", "blue")
        yield from self._whole(_plain(use.get("input")), is_cut=is_cut)

    def _result(self, result: Mapping[str, Any], *, is_cut: bool) -> Iterator[str]:
        name = result.get("toolName") or "result"
        style = "red" if result.get("isError") else "magenta"
        text = _plain(result.get("content"))
        if not self._raw:
            said = f"{name} failed" if result.get("isError") else name
            yield self._folded(_RESULT, said, text, style, is_cut=is_cut)
            return
        yield self._screen.paint(f"{_RESULT} {clean(name)}", style)
        yield from self._whole(text, is_cut=is_cut)

    def _folded(
        self, sign: str, name: str, text: str, style: str, *, with_size: bool = True, is_cut: bool = False
    ) -> str:
        """One line for something long: what it is, how much, and how it begins."""
        head = f"{sign} {clean(name)}"
        much = f" {size(len(text.encode(errors='replace')))}" if with_size and text else ""
        much += " and more" if is_cut else ""
        first = clean(" ".join(text.split(maxsplit=self._room)[: self._room]))  # more words than there is room for
        shown = cut(f"{much}  {first}".rstrip(), max(self._room - len(head), 0))
        return self._screen.paint(head, style) + self._screen.paint(shown, "dim")


def _tokens(turn: Mapping[str, Any]) -> str:
    usage = turn["usage"]
    made = usage["output"] + usage["reasoning"]
    return f"{number(sum(usage.values()) - made)} in, {number(made)} out"


def _told(value: Any) -> str:
    """What a call's arguments come to in a line: the one that says most first."""
    if not isinstance(value, dict):
        return _plain(value)
    names = [name for name in _TOLD_FIRST if name in value]
    return " ".join(_plain(value[name]) for name in (names[:1] or list(value)))


def _plain(value: Any) -> str:
    """A JSON value as a person would write it down."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("text"), str) for item in value):
        return "\n".join(item["text"] for item in value)
    if value is None:
        return ""
    import json

    return json.dumps(value, ensure_ascii=False, indent=2)


def _file(file: Mapping[str, Any]) -> str:
    known = f", {size(file['bytes'])}" if file.get("bytes") else ""
    return clean(f"{file.get('name') or 'file'} ({file['mime']}{known})")
