"""What both wrappers take: tags, whether to be quiet, another program's words after `--`, and the content mode."""

from __future__ import annotations

from burnctl.errors import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MODES = ("full", "hash-only", "off")


def after_dashes(words: Sequence[str]) -> list[str]:
    """The other program's words; the first `--` is ours, any other is its own."""
    return list(words[1:] if words[:1] == ["--"] else words)


def content_mode(env: Mapping[str, str]) -> str | None:
    """What `RELAYBURN_CONTENT_STORE` asks for; None where it asks for nothing. Raises Usage."""
    mode = env.get("RELAYBURN_CONTENT_STORE") or None
    if mode is not None and mode not in _MODES:
        raise Usage(f"RELAYBURN_CONTENT_STORE is {mode!r}", f"it may be {', '.join(_MODES)}")
    return mode
