"""`burnctl search`: finds words in everything that was said."""

from __future__ import annotations

from burnctl import flags
from burnctl.errors import Usage
from burnctl.starting import reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "finds the sessions in which something was said: prompts, answers, thoughts, arguments and results of tools, "
    "titles. Any of the words will do, and those that have more of them come first. What stands in quotation marks "
    "must stand so in a message; a shell takes them away unless they are quoted themselves. With --memory it searches "
    "standing instructions instead: files such as CLAUDE.md and AGENTS.md by section, and memory files, yours and "
    "those of every project with recorded sessions"
)
EXAMPLES = (
    "burnctl search cron refactor",
    "burnctl search --project . --since 4w 'resolve_dirs(config)'",
    "burnctl search '\"connection refused\"' --tool Bash --all",
    "burnctl search --memory deploy staging",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="WORD", nargs="+", help="what to look for")
    parser.add_argument("--memory", action="store_true", help="search instruction and memory files instead of sessions")
    flags.sessions(parser)
    parser.add_argument(
        "--role", choices=("user", "assistant", "tool_result", "system"), help="only what one of these said"
    )
    parser.add_argument("--tool", metavar="TOOL", help="only calls of this tool and their results")
    parser.add_argument("--session", metavar="SESSION", help="only in this session")
    parser.add_argument("--all", action="store_true", help="every message that matches, not only each session's best")
    parser.add_argument("--limit", metavar="N", type=flags.count, help="at most so many hits (10; 20 at most)")
    parser.add_argument("-B", dest="before", metavar="N", type=flags.index, help="messages shown before each hit (4)")
    parser.add_argument("-A", dest="after", metavar="N", type=flags.index, help="messages shown after each hit (4)")
    flags.reading(parser)
    parser.set_defaults(no_wait=True)


_OF_SESSIONS = ("project", "source", "since", "until", "role", "tool", "session", "all", "before", "after")


def run(options: argparse.Namespace) -> int:
    return _search_memory(options) if options.memory else _search_sessions(options)


def _search_memory(options: argparse.Namespace) -> int:
    for name in _OF_SESSIONS:
        if getattr(options, name) not in (None, False):
            flag = {"before": "-B", "after": "-A"}.get(name, f"--{name}")
            raise Usage(f"{flag} cannot be used with --memory", "it filters sessions: leave it out")
    answer = reach(options).search_memory(" ".join(options.words), limit=options.limit)
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    from burnctl.render.hits import memories
    from burnctl.render.screen import Screen

    screen = Screen.of(options)
    screen.report(answer, memories(answer, screen), "Results")
    return 0


def _search_sessions(options: argparse.Namespace) -> int:
    chosen = flags.sessions_of(options) | {"role": options.role, "tool": options.tool, "session": options.session}
    shown = {"limit": options.limit, "before": options.before, "after": options.after, "all": options.all or None}
    client = reach(options)
    answer = client.sessions_search(" ".join(options.words), **chosen, **shown)
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    import time

    from burnctl.render.empty import no_matches
    from burnctl.render.hits import found
    from burnctl.render.screen import Screen

    screen = Screen.of(options)
    otherwise = "" if answer["hits"] else no_matches(client, options, "Nothing was found")
    screen.report(answer, found(answer, screen, time.time() * 1000, otherwise), "Results")
    return 0
