"""`burnctl resume` prints the command that continues a session; `restore` writes its lost log again first."""

from __future__ import annotations

import json
import os
from importlib import import_module

from burnctl import flags, session_choice
from burnctl.daemon import print_note, reach
from burnctl.errors import BurnctlError
from burnctl.output import as_json
from burnctl.progress import waiting
from burnctl.render.text import clean
from burnd.contract import Params, param
from burnd.harness.registry import BY_SOURCE
from burnd.paths import working_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from burnctl.client import Client
    from burnd.harness.product import Product
    from burnd.harness.restore import Recording, Restored

HELP = {
    "restore": (
        "writes a session back in the form of its harness, so that the harness resumes it, after its log was cleaned "
        "up, lost or moved. Only new files are written, nothing is replaced, and a restored log adds no request. It "
        "prints what could not be restored, and the command that resumes the session"
    ),
    "resume": (
        "prints the command that continues a session in its folder and its harness. --json prints the facts of the "
        "session"
    ),
}
EXAMPLES = {
    "restore": ("burnctl sessions --gone", "burnctl restore 0f9c1d2e", "burnctl restore 0f9c1d2e --to /tmp/logs"),
    "resume": ("burnctl resume 0f9c1d2e", "burnctl resume scheduler", 'eval "$(burnctl resume --last)"'),
}
_NOT_STORED = {
    "pruned": "its content was pruned: see content.retention_days, or it was forgotten",
    "no": "none of its content was stored: content.store was off or hash-only, or its file in content/ was deleted",
}


class RestoreFlags(Params):
    to: str | None = param(default=None, help="write below this folder instead of the harness's own", metavar="DIR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verb = parser.prog.rpartition(" ")[2]
    session_choice.add_session(parser)
    if verb == "restore":
        flags.add(parser, RestoreFlags)
    flags.reading(parser)
    parser.set_defaults(run={"restore": restore, "resume": resume}[verb])


def run(options: argparse.Namespace) -> int:
    return int(options.run(options))


def restore(options: argparse.Namespace) -> int:
    client = reach(options)
    with waiting.during("reading the session"):
        recording = _recording(client, session_choice.chosen_session(client, options))
        product, restored = _restored(recording)
    if not options.to:
        _check_absent(product, recording.id)
    loads = bool(restored.load) and not options.to
    paths = _write(os.path.abspath(options.to or _folder(product, loads=loads)), restored)
    loaded = loads and _load(product, restored.load, paths[0], recording.folder)
    if loaded:
        for path in paths:
            os.unlink(path)
        os.rmdir(os.path.dirname(paths[0]))
    missing = [f"{what}: {count:,}" for what, count in restored.missing.items()]
    pruned = recording.session.get("prunedMessages")
    missing += [f"messages left out, since their content was pruned: {pruned:,}"] if pruned else []
    if options.json:
        return as_json(
            {"sessionId": recording.id, "files": [] if loaded else paths, "loaded": loaded, "missing": missing}
        )
    for note in missing:
        print_note(note)
    if loaded:
        print(f"{product.title} has imported the session")
    else:
        print("\n".join(paths))
    if restored.load and not loaded:
        print_note(f"to load it: {' '.join([product.program, *restored.load, paths[0]])}")
    if not options.to:
        print_note(f"to resume: {command(recording.session)}")
    return 0


def _recording(client: Client, session_id: str) -> Recording:
    from burnd.harness.restore import Recording

    pages: list[str] = []
    page: Any = {"next": None}
    while not pages or page["next"]:
        page = client.sessions_recording(session_id, next=page["next"])
        pages.append(page["lines"])
    turns, records = [], []
    for line in "".join(pages).split("\n"):
        value = json.loads(line) if line else None
        if value is not None:
            turns.append(value["turn"]) if "turn" in value else records.append(value)
    return Recording(page["session"], turns, records)


def _restored(recording: Recording) -> tuple[Product, Restored]:
    product = BY_SOURCE.get(recording.session["source"] or "")
    if product is None or not product.restore:
        whose = recording.session["source"] or "an unknown program"
        raise BurnctlError(f"this session was made by {whose}, which keeps no logs that could be restored")
    if not recording.rails():
        why = _NOT_STORED["pruned" if recording.session["content"] == "pruned" else "no"]
        raise BurnctlError(f"session {recording.id} cannot be restored: {why}", "burnctl show lists what is left of it")
    return product, import_module(product.restore).restore(recording)


def _check_absent(product: Product, session_id: str) -> None:
    folders = product.logs(os.environ, os.path.expanduser("~"))
    logs = import_module(product.restore).find_logs(folders)
    files = [path for path in folders if os.path.isfile(path)]  # databases
    if logs is None and files:
        raise BurnctlError(
            f"{files[0]} has no sessions or cannot be read, so that it is unknown whether the session is there",
            "--to DIR writes a file that can be imported",
        )
    if (path := (logs or {}).get(session_id)) is not None:
        raise BurnctlError(f"the session's log is there: {path}", "burnctl resume prints the command that resumes it")


def _folder(product: Product, *, loads: bool) -> str:
    """The harness's own folder; for a file that it will load (`loads`) a new one, or this one without the harness."""
    import shutil
    import tempfile

    if loads:
        return tempfile.mkdtemp(prefix="burnctl-restore-") if shutil.which(product.program) else working_folder() or "."
    homes = product.homes(os.environ, os.path.expanduser("~"))
    return next((home for home in homes if os.path.isdir(home)), homes[0])


def _write(home: str, restored: Restored) -> list[str]:
    """Writes new files, the first one last, so that a second try can complete a failed one.

    Raises BurnctlError if the first exists; existing files of subagents stay.
    """
    if any(".." in file.path.split("/") or os.path.isabs(file.path) for file in restored.files):
        raise BurnctlError("the session has an id that leads out of the harness's folder, and nothing was written")
    texts = {os.path.join(home, file.path): file.text for file in restored.files}
    if os.path.lexists(next(iter(texts))):
        raise BurnctlError(
            f"{next(iter(texts))} is there already, and nothing was written", "--to DIR writes elsewhere"
        )
    missing = [path for path in texts if not os.path.lexists(path)]
    for path in reversed(missing):
        unfinished = f"{path}.restoring-{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with open(fd, "wb") as out:
                    out.write(texts[path].encode("utf-8", "replace"))
                os.link(unfinished, path)  # unlike a rename, it fails if the path exists
            finally:
                os.unlink(unfinished)
        except FileExistsError:
            raise BurnctlError(f"{path} appeared meanwhile and was not replaced") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise BurnctlError(f"{path} could not be written: {reason}", "--to DIR writes elsewhere") from None
    return missing


def _load(product: Product, arguments: tuple[str, ...], path: str, folder: str) -> bool:
    """Has the harness load a file; False if it is not installed."""
    import shutil
    import subprocess

    program = shutil.which(product.program)
    if program is None:
        return False
    where = folder if os.path.isdir(folder) else None
    done = subprocess.run([program, *arguments, path], cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        print_note(f"{product.program} {' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return not done.returncode


def resume(options: argparse.Namespace) -> int:
    client = reach(options)
    session = client.sessions_meta(session_choice.chosen_session(client, options))
    if options.json:
        return as_json(session)
    print(command(session))
    if _is_gone(session):
        remedy = f"; to write it again first: burnctl restore {_word(session['sessionId'])}"
        lost = ", and it cannot be restored, since its content is not stored"
        print_note(f"its log is gone{remedy if session['content'] == 'yes' else lost}")
    return 0


def _is_gone(session: Mapping[str, Any]) -> bool:
    """Whether the harness has logs, but not this session's."""
    product = BY_SOURCE.get(session["source"] or "")
    if product is None or not product.restore:
        return False
    logs = import_module(product.restore).find_logs(product.logs(os.environ, os.path.expanduser("~")))
    return logs is not None and session["sessionId"] not in logs


def command(session: Mapping[str, Any]) -> str:
    """A shell command line, quoted for any folder. Raises BurnctlError if the harness cannot resume."""
    product = BY_SOURCE.get(session["source"] or "")
    if product is None:
        whose = session["source"] or "an unknown program"
        raise BurnctlError(f"this session was made by {whose}, which has no command to continue it")
    line = " ".join(_with_id((product.program, *product.resume), session["sessionId"]))
    folder = session["project"]
    if not folder:
        return line
    if not os.path.isdir(folder):
        print_note(f"{clean(folder)} no longer exists")
    return f"cd {_word(f'./{folder}' if folder.startswith('-') else folder)} && {line}"


def _with_id(words: tuple[str, ...], session_id: str) -> list[str]:
    """The harness's command, safe for an id with a leading dash."""
    *before, last = words
    if not session_id.startswith("-"):
        return [*words, _word(session_id)]
    return [*before, f"{last}={_word(session_id)}"] if last.startswith("-") else [*words, "--", _word(session_id)]


def _word(text: str) -> str:
    """A quoted word; control characters are written as bash and zsh escapes."""
    import shlex

    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(c if c.isprintable() and c not in "\\'" else f"\\U{ord(c):08x}" for c in text) + "'"
