"""The filters that every report takes, as keyword arguments. For type checkers alone: burnctl never imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


class Filters(TypedDict, total=False):
    """What a report is about. Every part narrows it; what is left out, or None, does not."""

    since: int | str | None
    until: int | str | None
    tz: int | str | None
    project: str | None
    session: str | None
    workflow: str | None
    agent: str | None
    tags: Mapping[str, str] | None
    source: str | None
    model: str | Sequence[str] | None
    provider: str | None
    branch: str | None
    activity: str | None
