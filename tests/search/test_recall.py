"""Words planted in logs and in a database are all found over the socket."""

from __future__ import annotations

from burnd.paths import Home
from tests.harness.claude_code.transcript import Transcript, call, text, thinking
from tests.harness.codex import rollout
from tests.harness.codex.rollout import Rollout
from tests.harness.opencode import data as rows
from tests.server.logs import write
from tests.server.wire import running, until

LONG = "filler words of a long result\n" * 400

# Where each word is planted: the session, the role it is found under, and the tool where there is one.
CLAUDE = {
    "claudeprompt": ("user", None),
    "claudequeued": ("user", None),
    "claudethought": ("assistant", None),
    "claudeanswer": ("assistant", None),
    "claudeinput": ("assistant", "Bash"),
    "clauderesult": ("tool_result", "Bash"),
    "claudeblocks": ("tool_result", "mcp__docs__find"),
    "claudeside": ("assistant", None),
    "clauderefused": ("system", None),
}
CODEX = {
    "codexprompt": ("user", None),
    "codexthought": ("assistant", None),
    "codexanswer": ("assistant", None),
    "codexinput": ("assistant", "shell"),
    "codexoutput": ("tool_result", "shell"),
    "codexpatched": ("assistant", "apply_patch"),
}
OPENCODE = {
    "ocprompt": ("user", None),
    "ocattached": ("user", None),
    "ocanswer": ("assistant", None),
    "octhought": ("assistant", None),
    "ocinput": ("assistant", "bash"),
    "ocoutput": ("tool_result", "bash"),
    "ocfailure": ("tool_result", "edit"),
    "ocpatch": ("assistant", None),
}


def claude_log() -> Transcript:
    log = Transcript(session="claude")
    log.prompt("claudeprompt, if you please")
    log.attach("queued_command", prompt="claudequeued as well", commandMode="prompt")
    asked = call("c1", "Bash", command="grep claudeinput"), call("c2", "mcp__docs__find", query="x")
    log.calls("m1", thinking(LONG + "claudethought"), *asked)
    log.result("c1", LONG + "clauderesult")
    log.result("c2", [{"type": "text", "text": "first"}, {"type": "text", "text": LONG + "claudeblocks"}])
    log.says("m2", text(LONG + "claudeanswer"))
    log.says("m3", text("claudeside"), isSidechain=True, agentId="a7", parent=None)
    log.says("m4", text("API Error: clauderefused"), model="<synthetic>", isApiErrorMessage=True)
    return log


def codex_log() -> Rollout:
    log = Rollout()
    log.task()
    log.prompt("codexprompt, if you please")
    log.item(rollout.thinking("sealed", LONG + "codexthought"), rollout.call("c1", "shell", command="cat codexinput"))
    log.meter(100, 0, 10, 0)
    log.answer("c1", LONG + "codexoutput")
    log.item(rollout.patch("c2", "src/codexpatched.py"), rollout.says(LONG + "codexanswer"))
    log.meter(120, 0, 10, 0)
    return log


def opencode_database(home: Home) -> rows.Writer:
    made = rows.Writer(home.root.parent / "share" / "opencode" / "opencode.db")
    made.session("ses_oc")
    made.user("msg_1", "ses_oc", "ocprompt now")
    made.part(
        "msg_1", "ses_oc", {"type": "file", "mime": "text/plain", "filename": "ocattached.txt", "url": "file:///x"}
    )
    made.step(
        "msg_2",
        "ses_oc",
        "msg_1",
        rows.reasoning(LONG + "octhought"),
        rows.text("ocanswer"),
        rows.tool("c1", "bash", {"command": "echo ocinput"}, LONG + "ocoutput"),
        rows.tool("c2", "edit", {"filePath": "/x"}, None, status="error", error="ocfailure: no such file"),
        {"type": "patch", "hash": "abc123", "files": ["/home/dev/app/ocpatch.py"]},
    )
    return made


def test_every_word_is_found_where_it_was_said(home: Home) -> None:
    """Prompts, answers, thoughts, arguments, results, errors, patches and files of every harness: all, not most."""
    write(home, claude_log(), "claude")
    database = opencode_database(home)
    codex = codex_log()
    codex_home = home.root.parent / "codex"
    (codex_home / "sessions").mkdir(parents=True)
    (codex_home / "sessions" / codex.name).write_bytes(codex.data)
    share = str(home.root.parent / "share")
    with running(home, XDG_DATA_HOME=share, CODEX_HOME=str(codex_home)) as daemon, daemon.wire() as wire:
        wire.call("flush")
        for last in ("clauderefused", "ocpatch", "codexanswer"):
            until(lambda: wire.call("sessions.search", query=last)["hits"])  # noqa: B023 - asked at once
        for session, planted in (("claude", CLAUDE), ("ses_oc", OPENCODE), (codex.thread, CODEX)):
            for word, (role, tool) in planted.items():
                hits = wire.call("sessions.search", query=word, role=role, tool=tool, all=True)["hits"]
                assert [hit["sessionId"] for hit in hits] == [session], word
                (matched,) = [item for item in hits[0]["window"] if item.get("match")]
                assert (matched["role"], matched.get("toolName")) == (role, tool), word
                assert word in matched["snippet"]
    database.close()
