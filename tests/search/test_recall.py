"""Everything that was said can be found: words planted in logs and in a database, looked for over the socket."""

from __future__ import annotations

from burnd.paths import Home
from tests.readers import opencode_data as rows
from tests.readers.transcript import Transcript, call, text, thinking
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
    """Prompts, answers, thoughts, arguments, results, errors, patches and files of both harnesses: all, not most."""
    write(home, claude_log(), "claude")
    database = opencode_database(home)
    with running(home, XDG_DATA_HOME=str(home.root.parent / "share")) as daemon, daemon.wire() as wire:
        wire.call("flush")
        until(lambda: wire.call("sessions.search", query="claudeside")["hits"])
        until(lambda: wire.call("sessions.search", query="ocpatch")["hits"])
        for session, planted in (("claude", CLAUDE), ("ses_oc", OPENCODE)):
            for word, (role, tool) in planted.items():
                hits = wire.call("sessions.search", query=word, role=role, tool=tool, all=True)["hits"]
                assert [hit["sessionId"] for hit in hits] == [session], word
                (matched,) = [item for item in hits[0]["window"] if item.get("match")]
                assert (matched["role"], matched.get("toolName")) == (role, tool), word
                assert word in matched["snippet"]
    database.close()
