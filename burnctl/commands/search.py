"""`burnctl search`: finds words in everything that was said."""

from __future__ import annotations

from burnctl import flags
from burnctl import options as own
from burnctl.errors import Usage
from burnctl.starting import reach
from burnd.contract.sessions import MemoryParams, SearchParams

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
    flags.place(parser, SearchParams, "query", "words", nargs="+")
    flags.add(parser, SearchParams, own.Search, skip=("query",))
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
    answer = flags.ask(reach(options), MemoryParams, options, query=" ".join(options.words))
    if options.json:
        from burnctl.output import as_json

        return as_json(answer)
    from burnctl.render.hits import memories
    from burnctl.render.screen import Screen

    screen = Screen.of(options)
    screen.report(answer, memories(answer, screen), "Results")
    return 0


def _search_sessions(options: argparse.Namespace) -> int:
    client = reach(options)
    answer = flags.ask(client, SearchParams, options, query=" ".join(options.words))
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
