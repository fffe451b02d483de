"""Every source there is, by name, and how each is made. A new harness is one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from burnd.config import Settings
from burnd.pipeline import Pipeline
from burnd.sources.base import Source
from burnd.sources.claude_code import ClaudeCode
from burnd.sources.opencode import OpenCode
from burnd.sources.opencode_places import data_folder, named_databases, present_databases
from burnd.sources.opencode_wanted import wanted_by
from burnd.sources.roots import claude_roots


class Surroundings(NamedTuple):
    """What a source is made from: where its records go, and all that may say where it finds them."""

    pipeline: Pipeline
    settings: Settings
    environ: Mapping[str, str]
    user_home: str
    announced: Sequence[str] = ()  # folders that clients told of, as the harness itself is told them


Make = Callable[[Surroundings], Source]


Look = Callable[[Settings, Mapping[str, str], str], Sequence[str]]


def _claude_code(given: Surroundings) -> Source:
    extra = [*given.settings.claude_roots, *given.announced]
    return ClaudeCode(claude_roots(given.environ, given.user_home, extra), given.pipeline)


def _claude_places(settings: Settings, environ: Mapping[str, str], user_home: str) -> Sequence[str]:
    return claude_roots(environ, user_home, settings.claude_roots)


def _opencode(given: Surroundings) -> Source:
    named = named_databases(given.environ, given.user_home, given.settings.opencode_databases)
    folder = data_folder(given.environ, given.user_home)
    source = OpenCode(given.pipeline, folder, named, wanted_by(given.settings, given.user_home))
    source.add_roots(given.announced)
    return source


def _opencode_places(settings: Settings, environ: Mapping[str, str], user_home: str) -> Sequence[str]:
    folder, named = data_folder(environ, user_home), named_databases(environ, user_home, settings.opencode_databases)
    return present_databases([folder], named) or [*named, folder]


SOURCES: dict[str, Make] = {
    "claude-code": _claude_code,
    "opencode": _opencode,
}
# Where each of them looks on this machine, for `burnd check`.
PLACES: dict[str, Look] = {
    "claude-code": _claude_places,
    "opencode": _opencode_places,
}
