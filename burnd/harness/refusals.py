"""How harnesses tell a model that a person did not let a call happen, or stopped it.

What a rule or a sandbox forbids is a failure like any other: nobody was there to say no.
"""

from __future__ import annotations

import re
from typing import Final

_HEAD: Final = 200
_REFUSED: Final = re.compile(
    r"\s*(?:Error: )?(?:<tool_use_error>)?(?:"
    # Claude Code
    r"The user doesn.t want to (?:proceed with this tool use|take this action)"
    r"|\[Request interrupted by user"
    r"|User (?:rejected tool use|declined to answer|chose to stay in plan mode)"
    r"|The agent proposed a plan that was rejected by the user"
    # opencode
    r"|The user (?:rejected permission|dismissed this question)"
    r"|User aborted the command"
    # Codex
    r"|(?:\w+ ){0,3}rejected by user"
    r"|aborted by user"
    r"|user (?:rejected|cancelled) MCP tool call"
    r")"
)


def is_refusal(text: str) -> bool:
    return _REFUSED.match(text[:_HEAD]) is not None
