"""The verbs of burnctl, one line each, so that help and completions import none of them.

A verb is the module of its name, unless `_MODULES` names another, with `HELP` and optionally `EXAMPLES` (each of them a
dict if the module has several verbs), `add_arguments(parser)` and `run(options)`, which returns the exit code.
"""

from __future__ import annotations

MONEY, REASONS, SESSIONS, STAMPS, DAEMON, SETTINGS = (
    "What was spent",
    "Why, and where to save",
    "Sessions",
    "Tags and wrappers",
    "The daemon",
    "Settings and upkeep",
)

# In the order of the help.
_TABLE = (
    ("overview", MONEY, "the last 30 days at a glance; the same as burnctl alone"),
    ("today", MONEY, "the overview of today, hour by hour"),
    ("top", MONEY, "the running sessions, live"),
    ("live", MONEY, "the same as top"),
    ("daily", MONEY, "a row for each day, with its models"),
    ("weekly", MONEY, "a row for each week"),
    ("monthly", MONEY, "a row for each month"),
    ("projects", MONEY, "cost by project"),
    ("models", MONEY, "cost by model"),
    ("harnesses", MONEY, "cost by harness: Claude Code, Codex, opencode"),
    ("agents", MONEY, "cost by agent and subagent"),
    ("tags", MONEY, "cost by the values of a tag"),
    ("summary", MONEY, "cost by anything: model, day, project, session, tag"),
    ("compare", MONEY, "models side by side: cost, first-try rate, cache hits"),
    ("blocks", MONEY, "the 5-hour windows of a subscription"),
    ("limits", MONEY, "how much of the plan and of budgets is used"),
    ("guard", MONEY, "stop a session that reaches a limit of yours"),
    ("statusline", MONEY, "one short line for a status bar"),
    ("export", MONEY, "requests as lines of JSON, CSV or Parquet"),
    ("push", MONEY, "send requests to a database or folder for a whole team"),
    ("pricing", MONEY, "the prices in use, and how to update them"),
    ("why", REASONS, "what a session's money went to"),
    ("hotspots", REASONS, "the tools, files, commands and prompts that cost most"),
    ("by-tool", REASONS, "the same as hotspots"),
    ("waste", REASONS, "spending that could have been avoided, with evidence"),
    ("explain", REASONS, "how a kind of avoidable spending is proved, and what to do"),
    ("report", REASONS, "all of it as one HTML file to read or send"),
    ("overhead", REASONS, "what system prompt, tools and memory files cost"),
    ("flow", REASONS, "how a session's context grew and shrank"),
    ("sessions", SESSIONS, "list sessions with their titles"),
    ("show", SESSIONS, "read a session's messages"),
    ("search", SESSIONS, "find words in all conversations"),
    ("resume", SESSIONS, "continue a session in its harness"),
    ("restore", SESSIONS, "write the lost log of a session again"),
    ("mcp", SESSIONS, "serve past sessions to an agent over MCP"),
    ("claude", STAMPS, "run Claude Code with its session tagged"),
    ("run", STAMPS, "run any harness with its session tagged"),
    ("stamp", STAMPS, "tag a session, a message or a time range"),
    ("stamps", STAMPS, "list, export or remove tags"),
    ("status", DAEMON, "what burnd is doing, and what is wrong"),
    ("tail", DAEMON, "requests as they happen, one line each"),
    ("up", DAEMON, "start burnd"),
    ("down", DAEMON, "stop burnd"),
    ("restart", DAEMON, "stop burnd and start it again"),
    ("flush", DAEMON, "wait until everything logged so far is recorded"),
    ("service", DAEMON, "start burnd at login, with systemd or launchd"),
    ("doctor", SETTINGS, "check everything, with advice"),
    ("config", SETTINGS, "show and change the settings"),
    ("content", SETTINGS, "prune stored conversations"),
    ("forget", SETTINGS, "erase the text of sessions for good"),
    ("rebuild", SETTINGS, "rebuild the index or the activity labels"),
    ("completions", SETTINGS, "completions for bash, zsh or fish"),
    ("demo", SETTINGS, "try it all on made-up sessions"),
)

VERBS = {verb: (group, line) for verb, group, line in _TABLE}

# Verbs that share a module find their name at the end of `parser.prog`.
_MODULES = {
    "blocks": "limits",
    "by-tool": "hotspots",
    "live": "top",
    "today": "overview",
    "pricing": "prices",
    "resume": "restore",
    **dict.fromkeys(("down", "restart"), "up"),
    **dict.fromkeys(("flush", "rebuild", "content", "forget"), "upkeep"),
    **dict.fromkeys(("daily", "weekly", "monthly"), "periods"),
    **dict.fromkeys(("projects", "models", "harnesses", "agents", "tags"), "summary"),
}


def module_of(verb: str) -> str:
    return _MODULES.get(verb) or verb.replace("-", "_")


def present() -> dict[str, tuple[str, str]]:
    """Each verb whose module is installed, with its group and line."""
    from pkgutil import iter_modules

    here = {module.name for module in iter_modules(__path__)}
    return {verb: about for verb, about in VERBS.items() if module_of(verb) in here}
