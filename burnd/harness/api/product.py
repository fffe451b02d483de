"""The sources of sessions that programs push over the socket, by the API whose usage they report."""

from __future__ import annotations

SOURCES = ("anthropic-api", "openai-api", "gemini-api")
