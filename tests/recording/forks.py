"""Logs of a private session and of everything that comes out of it, as Claude Code writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.faults.canaries import CANARY, LONG
from tests.harness.claude_code.transcript import Transcript, call, text

OFF, FORK, BRANCH, CLEAR, BACKGROUND = "private", "forked", "branched", "cleared", "background"
OLD_RESUME, SILENT, SILENT_FORK, PLAIN = "resumed-anew", "silent", "silent-fork", "plain"


def private(session: str = OFF, word: str = CANARY) -> Transcript:
    """A session with the word in every place for text."""
    log = Transcript(session=session, prefix=f"{session}-u", session_id=session)
    log.bare(type="ai-title", sessionId=session, aiTitle=f"At first the {word}")
    log.prompt(f"please {word}")
    log.attach("file", filename="a.py", content={"type": "text", "file": {"content": f"{word} in a file"}})
    log.attach("hook_success", hookEvent="SessionStart", content=f"a hook says {word}")
    log.says(f"{session}-m0", text(f"I will {word}"), call(f"{session}-c0", "Bash", command=f"echo {word}"))
    log.result(f"{session}-c0", f"out {word} " * 300, toolUseResult={"stdout": word})
    log.says(f"{session}-m1", text(LONG if word == CANARY else word * 400))
    log.prompt(f"again {word}")  # which was not answered before the fork was made
    return log


def after(log: Transcript, word: str = CANARY) -> None:
    """The final lines of a client: title and last prompt."""
    log.bare(type="ai-title", sessionId=log._session, aiTitle=f"On the {word}")
    log.bare(type="last-prompt", sessionId=log._session, lastPrompt=f"please {word}", leafUuid="x")


def repeated(
    lines: Iterable[bytes], session: str, *, times: str | None = None, drop: Iterable[str] = (), **fields: Any
) -> list[bytes]:
    """The lines of a log as another session's repeats them."""
    found = []
    for line in lines:
        said = json.loads(line)
        if "uuid" in said:
            said = {key: value for key, value in said.items() if key not in drop}
            said |= {"sessionId": session, **fields} | ({"timestamp": times} if times else {})
            found.append(json.dumps(said).encode())
    return found


def goes_on(log: Transcript, word: str, at: int = 900) -> None:
    """A prompt and an answer of the session's own."""
    log.begin(at)
    log.prompt(f"and now {word}")
    log.says(f"{log._session}-own", text(f"that is {word}"))


def logs(word: str = CANARY) -> dict[str, list[bytes]]:
    """Every session by its name; the word is in all that must not be kept."""
    original = private(word=word)
    past = list(original.lines)
    after(original, word)
    made = {OFF: original.lines}

    fork = Transcript(session=FORK, prefix="f-u")
    fork.bare(type="queue-operation", operation="enqueue", timestamp=fork.time(800), sessionId=FORK)
    fork.lines += repeated(past, FORK, drop=["session_id"])
    goes_on(fork, word)
    after(fork, word)
    made[FORK] = fork.lines

    branch = Transcript(session=BRANCH, prefix="b-u")
    branch.lines += repeated(past, BRANCH, forkedFrom={"sessionId": OFF, "messageUuid": "x"})
    branch.bare(type="custom-title", sessionId=BRANCH, customTitle=f"side {word}")
    goes_on(branch, word)
    made[BRANCH] = branch.lines

    clear = Transcript(session=CLEAR, prefix="c-u")
    clear.bare(type="custom-title", sessionId=CLEAR, customTitle=f"side {word}")
    clear.begin(900)
    clear.prompt(f"after clear {word}")
    clear.says("clear-m0", text(f"cleared {word}"), session_id=OFF)
    made[CLEAR] = clear.lines

    background = Transcript(session=BACKGROUND, prefix="bg-u")
    background.lines += repeated(past, BACKGROUND, drop=["session_id"], sessionKind="bg")
    goes_on(background, word)
    made[BACKGROUND] = background.lines

    resumed = Transcript(session=OLD_RESUME, prefix="o-u")
    resumed.lines += repeated(past, OLD_RESUME, times=resumed.time(850), drop=["session_id", "requestId"])
    goes_on(resumed, word)
    made[OLD_RESUME] = resumed.lines

    silent = Transcript(session=SILENT, prefix="s-u")
    silent.prompt(f"unanswered {word}")
    made[SILENT] = list(silent.lines)
    again = Transcript(session=SILENT_FORK, prefix="sf-u")
    again.lines += repeated(silent.lines, SILENT_FORK)
    goes_on(again, word)
    made[SILENT_FORK] = again.lines

    plain = Transcript(session=PLAIN, prefix="p-u")
    plain.prompt("an ordinary prompt")
    plain.says("plain-m0", text("an ordinary answer"))
    plain.bare(type="ai-title", sessionId=PLAIN, aiTitle="An ordinary title")
    made[PLAIN] = plain.lines
    return made
