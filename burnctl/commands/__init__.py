"""The verbs of burnctl: one line each, so that help and completions need to import none of them.

A verb `by-tool` is the module `by_tool` beside this file, with
    HELP: str                                   what it does, in a sentence or a few
    EXAMPLES: tuple[str, ...]                   command lines to show in its help (optional)
    add_arguments(parser) -> None               its flags, on an argparse parser
    run(options) -> int                         does it; returns the exit code
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

# In the order in which help shows them.
_TABLE = (
    ("summary", MONEY, "what was spent: by model, day, project, session, tag"),
    ("compare", MONEY, "models side by side: cost, one-shot rate, cache, retries by activity"),
    ("limits", MONEY, "how much of the subscription's windows is used"),
    ("statusline", MONEY, "one short line for a status bar"),
    ("export", MONEY, "turns as lines of JSON, CSV or Parquet"),
    ("pricing", MONEY, "the prices that are used, and how to bring in newer ones"),
    ("why", REASONS, "what each dollar of a session went to"),
    ("by-tool", REASONS, "cost by tool"),
    ("hotspots", REASONS, "the files, commands and results that cost most"),
    ("waste", REASONS, "spending that could have been avoided, with evidence"),
    ("explain", REASONS, "how a kind of avoidable spending is proved, and what to do"),
    ("overhead", REASONS, "what system prompt, tools and memory files cost"),
    ("flow", REASONS, "how a session's context grew and shrank, turn by turn"),
    ("sessions", SESSIONS, "list sessions"),
    ("show", SESSIONS, "read a session's messages"),
    ("search", SESSIONS, "find words in everything that was said"),
    ("resume", SESSIONS, "go on with a session in its harness"),
    ("mcp", SESSIONS, "serve past sessions to an agent over MCP"),
    ("claude", STAMPS, "run Claude Code with its session tagged"),
    ("run", STAMPS, "run any harness with its session tagged"),
    ("stamp", STAMPS, "tag a session, a message or a time range"),
    ("stamps", STAMPS, "list or export tags"),
    ("status", DAEMON, "what burnd is doing, and whether all is well"),
    ("tail", DAEMON, "turns as they happen, one line each"),
    ("up", DAEMON, "start burnd"),
    ("down", DAEMON, "stop burnd"),
    ("restart", DAEMON, "stop burnd and start it again"),
    ("flush", DAEMON, "record everything that can be read now, and wait until it is"),
    ("service", DAEMON, "have burnd started at login, by systemd or launchd"),
    ("doctor", SETTINGS, "check everything and say what to do"),
    ("config", SETTINGS, "make, show and change the settings"),
    ("content", SETTINGS, "prune what is kept of conversations"),
    ("forget", SETTINGS, "erase what was said, at once and for good"),
    ("rebuild", SETTINGS, "make the index, or the labels of turns, anew"),
    ("completions", SETTINGS, "completions for bash, zsh or fish"),
    ("demo", SETTINGS, "try it all on made-up sessions"),
)

VERBS = {verb: (group, line) for verb, group, line in _TABLE}


def module_of(verb: str) -> str:
    return verb.replace("-", "_")


def present() -> dict[str, tuple[str, str]]:
    """The verbs whose module is here, in a folder or in a zip file: name to (group, one line)."""
    from pkgutil import iter_modules

    here = {module.name for module in iter_modules(__path__)}
    return {verb: about for verb, about in VERBS.items() if module_of(verb) in here}
