"""How the daemon writes its log: events with keys, as JSON lines or for a person, never any content."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog


def configure(*, as_json: bool, level: str = "info", stream: TextIO | None = None) -> None:
    """Sends events to `stream` (stderr by default). JSON is for machines, the other form for a terminal."""
    out = stream or sys.stderr
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=out.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
