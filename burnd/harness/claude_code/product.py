"""Claude Code as the registry lists it, its folders, and its registry of live processes, `sessions/<pid>.json`."""

from __future__ import annotations

import os
import stat

from burnd.harness.product import Check, Instructions, Product, Setting, Variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

_CLEANUP_DAYS = 30  # its own default
_SHORT_DAYS = 2
MANAGED = ("/etc/claude-code", "/Library/Application Support/ClaudeCode")  # folders of a machine's policy
_LARGEST = 1 << 20
_LONGEST_PID = 12
_MAX_ENTRIES = 1000  # far more than there are processes
NAME_LIMIT = 200  # of a project's folder name; a longer one ends in a hash


class ClaudeCode(Product):
    """Transcripts below `projects/` of its configuration folder."""

    source = "claude-code"
    title = "Claude Code"
    module = "burnd.harness.claude_code.source"
    totals = "burnd.harness.claude_code.totals"
    demo = "burnd.harness.claude_code.demo"
    restore = "burnd.harness.claude_code.restore"

    program = "claude"
    resume = ("--resume",)
    session_variables = ("CLAUDE_CODE_SESSION_ID", "CLAUDE_SESSION_ID")
    logs_compactions = False
    has_plan = True
    plans = {  # noqa: RUF012
        "pro": ("Claude Pro", 20),
        "max5": ("Claude Max 5x", 100),
        "max20": ("Claude Max 20x", 200),
    }

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
    failed_shell = r"(?:Error: )?Exit code -?[1-9]"
    # Commands for the client begin with their names, and are no prompts.
    command = (
        r"\s*<command-message>.*?</command-message>\s*<command-name>\s*/?([^<\s]+)\s*</command-name>"
        r"(?:\s*<command-args>(.*?)(?:</command-args>|\Z))?"
    )
    error_tag = "tool_use_error"
    errors = (
        "connection error",
        "credit balance is too low",
        "invalid api key",
        "no response requested",
        "not logged in",
        "oauth token has expired",
        "oauth token revoked",
        "prompt is too long",
        "request timed out",
        "request was aborted",
    )
    error_beginnings = (
        "[request interrupted by user",
        "5-hour limit reached",
        "api error (",
        "api error:",
        "claude ai usage limit reached",
        "claude usage limit reached",
        "failed to authenticate. api error",
        "there's an issue with the selected model",
        "this organization has been disabled",
        "unable to connect to api",
        "weekly limit reached",
        "you've hit your limit",
        "you've hit your usage limit",
        "your account does not have access to claude",
        "your organization has been disabled",
    )
    error_parts = ("· please run /login", "· fix external api key", "· please try again")
    instructions = Instructions(
        dict.fromkeys(("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md", ".claude/rules/"), "claude-md"),
        dict.fromkeys(("CLAUDE.md", "rules/"), "claude-md"),
        managed=MANAGED,
        follows_imports=True,
        memory_kind="claude-memory",
    )
    instructions_module = "burnd.harness.claude_code.instructions"
    hooks_file = "settings.json"

    def named_homes(self, environ: Mapping[str, str]) -> list[str]:
        """One path, commas included, as the client takes it; and its parts, since other tools read a list."""
        value = environ.get("CLAUDE_CONFIG_DIR", "")
        return [value, *(value.split(",") if "," in value else ())]

    def memory_folders(self, homes: Iterable[str], projects: Iterable[str]) -> Iterator[tuple[str, str | None]]:
        """`memory/` of each project's folder; without the project if several share the folder name."""
        by_name: dict[str, str | None] = {}
        for project in dict.fromkeys(projects):
            name = project_name(project)[:NAME_LIMIT]
            by_name[name] = project if name not in by_name else None
        for home in homes:
            below = os.path.join(home, "projects")
            for name in sorted(_listed(below)):
                yield os.path.join(below, name, "memory"), by_name.get(name[:NAME_LIMIT])

    def clean_up_days(self, homes: Iterable[str]) -> float | None:
        home = next((folder for folder in homes if os.path.isdir(os.path.join(folder, "projects"))), "")
        days: Any = _object(os.path.join(home, "settings.json")).get("cleanupPeriodDays", _CLEANUP_DAYS)
        return days if isinstance(days, int | float) and days > 0 else None

    def checks(self, homes: Iterable[str]) -> Iterator[Check]:
        home = next((folder for folder in homes if os.path.isdir(os.path.join(folder, "projects"))), None)
        if home is None:
            return
        path = os.path.join(home, "settings.json")
        days = self.clean_up_days([home])
        if days is None:
            value = _object(path).get("cleanupPeriodDays")
            yield Check("log clean-up", "ok", f"Claude Code deletes no logs: `cleanupPeriodDays` in {path} is {value}")
            return
        text = f"Claude Code deletes its logs after {'a day' if days == 1 else f'{days:g} days'}"
        if days <= _SHORT_DAYS:
            remedy = f"what is logged while burnd is down may be gone unread; raise `cleanupPeriodDays` in {path}"
            yield Check("log clean-up", "warn", text, remedy)
        else:
            yield Check("log clean-up", "ok", f"{text}; burnd keeps what it recorded")


def config_folder(environ: Mapping[str, str]) -> str:
    """`$CLAUDE_CONFIG_DIR` as it is written, else `~/.claude`. Raises OSError in a deleted folder."""
    value = environ.get("CLAUDE_CONFIG_DIR")
    return os.path.abspath(value) if value else os.path.join(os.path.expanduser("~"), ".claude")


def project_folders(config: str, working_folder: str, environ: Mapping[str, str]) -> list[str]:
    """The folders below `projects/` for a working folder; those of a long path end in various hashes."""
    projects = os.path.join(config, "projects")
    name = environ.get("CLAUDE_CODE_PROJECT_DIR_NAME") or project_name(os.path.realpath(working_folder))
    is_long = len(name) > NAME_LIMIT
    names = [
        folder
        for folder in _listed(projects)
        if (folder.startswith(name[:NAME_LIMIT] + "-") if is_long else folder == name)
    ]
    return [path for folder in names if os.path.isdir(path := os.path.join(projects, folder))]


def project_name(folder: str) -> str:
    """A project's folder name below `projects/`. A character beyond the BMP counts twice, as in UTF-16."""
    units = "".join("--" if ord(letter) > 0xFFFF else letter for letter in folder)
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in units)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _object(path: str, flags: int = 0) -> dict[str, Any]:
    import json  # noqa: PLC0415 - burnctl imports this module at every start, and json takes longer than the rest

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
        with open(fd, "rb") as file:
            data = file.read(_LARGEST) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        values = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


class LiveSession:
    __slots__ = ("cwd", "id")

    def __init__(self, session_id: str, cwd: str) -> None:
        self.id, self.cwd = session_id, cwd


def live_sessions(config: str) -> dict[int, LiveSession]:
    """The current session of each Claude Code process by process id, without unreadable entries."""
    folder = os.path.join(config, "sessions")
    try:
        names = os.listdir(folder)[:_MAX_ENTRIES]
    except OSError:
        return {}
    live: dict[int, LiveSession] = {}
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix == ".json" and stem.isdecimal() and len(stem) < _LONGEST_PID:
            entry = _object(os.path.join(folder, name), os.O_NOFOLLOW)
            session_id, cwd = entry.get("sessionId"), entry.get("cwd")
            if isinstance(session_id, str) and session_id and session_id.isascii():
                live[int(stem)] = LiveSession(session_id, cwd if isinstance(cwd, str) else "")
    return live


PRODUCT = ClaudeCode()
