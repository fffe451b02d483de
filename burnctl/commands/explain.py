"""`burnctl explain`: how a kind of avoidable spending is found, what it costs, and what to do."""

from __future__ import annotations

from burnctl import flags
from burnctl.render.screen import Screen
from burnctl.render.tables import Column, table
from burnctl.render.text import wrap
from burnd.contract.reports import WasteParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


class Kind:
    __slots__ = ("advice", "cost", "line", "place", "proof", "title")

    def __init__(self, title: str, proof: str, cost: str, advice: str, place: str, line: str) -> None:
        self.title, self.proof, self.cost = title, proof, cost
        self.advice, self.place, self.line = advice, place, line


HELP = (
    "explains a kind of finding of `burnctl waste`: how it is proved, what its cost includes, and what to do about it. "
    "Without KIND it lists all kinds"
)
EXAMPLES = ("burnctl explain", "burnctl explain cache-miss")

_RULES = "CLAUDE.md or AGENTS.md"
KINDS = {
    "cache-miss": Kind(
        "cache misses",
        "A part of the context that had been sent before was not read from the cache, but billed as new input or as a "
        "cache write. The reason is proved if the log leaves no other: another model, a compaction, the provider's own "
        "statement, or the hashes of two requests in newer logs of Claude Code. These show that system prompt or "
        "tools, effort or settings, or an earlier message changed; or that nothing did, so that the cache expired or "
        "the provider dropped it. Otherwise it is inferred from times and sizes: a pause longer than the cache lives, "
        "a long call, a changed start, a rewind.",
        "the tokens that were billed again, without the new ones of the request",
        "Start a new session after a long break, and do not change models, effort, tools, MCP servers or memory files "
        "within a session. Allow beforehand what may run, so that no call waits for permission.",
        "before a break, in the session",
        "/compact",
    ),
    "rode-far": Kind(
        "large results carried through many requests",
        "A call brought 2,000 tokens or more into the context, and these were sent again in 10 requests or more, "
        "40,000 tokens in all. Files in folders that tools make (node_modules, dist, .venv) are one finding.",
        "all that the call and its result cost, when it came in and in every later request",
        "Let a subagent read large results, or ask for less of them.",
        _RULES,
        "Pipe commands with long output through `tail -n 40` or `grep`; read large files in ranges.",
    ),
    "oversized": Kind(
        "very large results",
        "A call brought 10,000 tokens or more into the context at once.",
        "all that the call and its result cost, when it came in and in every later request",
        "Ask for less at once: a range of lines, a narrower search, the end of a log.",
        _RULES,
        "Never print more than 200 lines of a file or log at once.",
    ),
    "reread": Kind(
        "unchanged files read again",
        "The same read (tool, file, arguments) returned the same result while the first result was still in the "
        "context, and no edit came between. Without recorded content the sizes must be the same.",
        "all that the repeated reads cost, without the first one",
        "The file was still in the context: ask for what is new, or for the lines that are needed.",
        _RULES,
        "Do not read a file again that is still in the context and has not changed.",
    ),
    "retry-loop": Kind(
        "the same call failing again and again",
        "The same call failed three times or more, and nothing was done in between that could have made it work: only "
        "reads and searches succeeded, and no prompt came.",
        "all of these calls except the first one",
        "Stop after the second failure, and look at the error.",
        _RULES,
        "If a command fails twice in the same way, stop and find the cause before trying again.",
    ),
    "failure-run": Kind(
        "many failed calls in a row",
        "Five calls or more failed one after the other. A call that a person refused has not failed.",
        "those calls that are in no retry loop",
        "Check paths, permissions and the working folder first.",
        _RULES,
        "Check the working folder and that paths exist before a series of commands.",
    ),
    "edit-revert": Kind(
        "edits that were undone",
        "An edit was reversed later, or several edits led back to what was there, proved by the hashes of the texts; "
        "or a file was edited between two times that the same was written as the whole of it.",
        "the edits that came to nothing",
        "Decide what the file should be before editing it.",
        _RULES,
        "Decide on a change before editing; do not try variants in the file.",
    ),
    "prefix-bloat": Kind(
        "sessions that start with too much",
        "A session began with a system prompt, tools and memory files at least half as large again as is usual in the "
        "project (the median of four sessions or more), and with 2,000 tokens more.",
        "what is more than usual, in every request of the session",
        "`burnctl overhead` lists memory files by size, and MCP servers that were never called.",
        "in a shell",
        "burnctl overhead",
    ),
    "compaction-churn": Kind(
        "repeated compactions",
        "A conversation was compacted three times or more, or twice within 20 requests.",
        "the summaries, and the files that were read again within 10 requests",
        "Start a new session for a new task, and keep large results out of it.",
        "between tasks, in the session",
        "/clear",
    ),
    "delegation": Kind(
        "subagents that cost more than they saved",
        "A subagent failed, or cost more than its work would have in the context that started it: everything it read "
        "written there once and sent again as often as its answer was. Only agents of the same model are compared.",
        "all that the subagent cost",
        "Give subagents larger pieces of work, and let them note what they find as they go.",
        _RULES,
        "Use a subagent only for work that reads many files; look small things up yourself.",
    ),
    "release": Kind(
        "releases that cost more",
        "After a new release of a harness, requests of the same model cost 25% more on average than with the release "
        "before, or missed the cache half as often again and in 2 of 100 requests more. Both releases need 200 "
        "requests and 5 sessions. It may be due to other work: compare the same kind of work with `burnctl compare`.",
        "the requests of the new release times what each cost more; it is not part of the avoidable sum",
        "Look at what changed, and at `burnctl hotspots --by cache-miss --version RELEASE`.",
        "in a shell",
        "burnctl compare --by version",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.place(parser, WasteParams, "kind", nargs="?")
    flags.add(parser, flags.Output, only=("no_color",))


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    screen.show(draw(options.kind, screen) if options.kind else draw_all(screen))
    return 0


def draw_all(screen: Screen) -> str:
    rows = [(name, kind.title) for name, kind in KINDS.items()]
    kinds = table((Column("kind"), Column("finds", least=20)), rows, screen)
    hint = wrap("burnctl explain KIND: how one is proved, and what to do about it.", screen.width)
    return "\n".join([kinds, "", *hint])


def draw(name: str, screen: Screen) -> str:
    kind = KINDS[name]
    lines = [screen.paint(f"{name}: {kind.title}", "bold")]
    for head, text in (
        ("how it is proved", kind.proof),
        ("what its cost includes", f"{kind.cost[:1].upper()}{kind.cost[1:]}."),
        ("what to do", kind.advice),
    ):
        lines += ["", screen.paint(head, "cyan"), *wrap(text, min(screen.width, 100))]
    places = wrap(f"to paste ({kind.place})", screen.width)
    lines += ["", *(screen.paint(line, "cyan") for line in places), kind.line]
    lines += ["", f"yours: burnctl waste --kind {name}"]
    return "\n".join(lines)
