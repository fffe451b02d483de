"""Claude Code as a source: its transcripts, followed by the log engine."""

from __future__ import annotations

from burnd.harness.claude_code.product import PRODUCT
from burnd.harness.claude_code.transcripts import ClaudeLogs
from burnd.harness.supervisor import SourceContext
from burnd.logfiles.follower import LogFollower
from burnd.recording.source import Source


def make(context: SourceContext) -> Source:
    return LogFollower(ClaudeLogs(), context.logs(PRODUCT), context.pipeline)
