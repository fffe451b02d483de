"""`burnctl overhead`: what standing instructions cost, by file and section."""

from __future__ import annotations

import os

from burnctl import flags
from burnctl.progress_line import ProgressLine
from burnctl.starting import reach
from burnd.contract.reports import OverheadParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "tells what the standing instructions of a project cost: every session begins with them, and pays for them again "
    "in every turn. Instruction files such as CLAUDE.md and AGENTS.md (yours, the project's, what they import), rules "
    "and the harness's own notes, by file and section, as a share of what the prefixes of the project's sessions cost; "
    "files in folders below and rules for some paths, which are only read when needed, are listed without. Files that "
    "the log lists have their size at the start of the newest session, others that of today. Also says which MCP "
    "servers were never called"
)
EXAMPLES = ("burnctl overhead", "burnctl overhead --project ~/code/shop --since 30d")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, OverheadParams, only=("project", "since", "until"), usual={"project": "."})
    parser.set_defaults(project=os.getcwd())
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    from burnctl.overhead import begun_in, instruction_files, mcp_servers, priced

    client = reach(options)
    asked = options.project
    folder = begun_in(client, asked)
    with ProgressLine("looking") as client.progress:
        project = folder if os.path.isabs(asked) else asked
        answer = flags.ask(client, OverheadParams, options, project=project)
    is_path = os.path.isabs(folder)  # one's own files are read wherever one works, though the folder is gone
    files, servers = (instruction_files(folder, os.environ), mcp_servers(folder, os.environ)) if is_path else ([], [])
    report = priced(answer, files, servers) | {"folder": folder if os.path.isdir(folder) else None}
    if options.json:
        from burnctl.output import as_json

        return as_json(report)
    from burnctl.render.empty import no_matches
    from burnctl.render.overhead import shown
    from burnctl.render.screen import Screen
    from burnctl.render.text import clean

    screen = Screen.of(options)
    screen.report(
        report, shown(report, folder, asked, screen) or no_matches(client, options, f"No sessions of {clean(asked)}")
    )
    return 0
