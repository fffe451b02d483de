"""Claude Code as the registry lists it."""

from __future__ import annotations

import json
import os

from burnd.harness.product import Check, Product, Setting, Variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

_CLEANUP_DAYS = 30  # its own default
_SHORT_DAYS = 2


class ClaudeCode(Product):
    """Transcripts below `projects/` of its configuration folder."""

    source = "claude-code"
    title = "Claude Code"
    module = "burnd.harness.claude_code.source"
    demo = "burnd.harness.claude_code.demo"

    program = "claude"
    resume = ("--resume",)
    session_variables = ("CLAUDE_CODE_SESSION_ID", "CLAUDE_SESSION_ID")
    has_plan = True

    variables = (
        Variable(
            "CLAUDE_CONFIG_DIR", "where Claude Code keeps its sessions; ~/.claude and ~/.config/claude are read as well"
        ),
    )
    settings = (
        Setting(
            "claude.roots",
            "folders",
            [],
            "More folders to read Claude Code's sessions from, beside CLAUDE_CONFIG_DIR, ~/.claude and "
            "~/.config/claude.",
        ),
    )
    default_homes = ("~/.claude", "~/.config/claude")
    log_folders = ("projects",)

    tools = {  # noqa: RUF012
        "edit": "Edit Write MultiEdit NotebookEdit",
        "shell": "Bash",
        "delegate": "Task Agent",
        # Early releases spelled the tool in snake case, and their logs are still read.
        "plan_exit": "ExitPlanMode exit_plan_mode",
        "read": "Read NotebookRead ReadMcpResourceTool",
        "search": "Grep Glob LS LSP ToolSearch ListMcpResourcesTool",
        "web": "WebFetch WebSearch",
        "todo": "TodoWrite TodoRead TaskCreate TaskUpdate TaskList TaskGet",
        "skill": "Skill SlashCommand",
    }
    whole_file_tools = ("Write",)

    def named_homes(self, environ: Mapping[str, str]) -> list[str]:
        """One path, commas included, as the client takes it; and the parts, since other tools read a list."""
        named = environ.get("CLAUDE_CONFIG_DIR", "")
        return [named, *(named.split(",") if "," in named else ())]

    def checks(self, homes: Iterable[str]) -> Iterator[Check]:
        """How long it keeps its own logs."""
        home = next((folder for folder in homes if os.path.isdir(os.path.join(folder, "projects"))), None)
        if home is None:
            return
        path = os.path.join(home, "settings.json")
        days: Any = _settings(path).get("cleanupPeriodDays", _CLEANUP_DAYS)
        if not isinstance(days, int | float) or days <= 0:
            yield Check("log clean-up", "ok", f"Claude Code deletes no logs: `cleanupPeriodDays` in {path} is {days}")
            return
        says = f"Claude Code deletes its logs after {'a day' if days == 1 else f'{days:g} days'}"
        if days <= _SHORT_DAYS:
            remedy = f"what is logged while burnd is down may be gone unread; raise `cleanupPeriodDays` in {path}"
            yield Check("log clean-up", "warn", says, remedy)
        else:
            yield Check("log clean-up", "ok", f"{says}; burnd keeps what it recorded")


def _settings(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


PRODUCT = ClaudeCode()
