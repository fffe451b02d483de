"""An edit and its reverse are recognised by their hashes, and no other pairs are."""

from __future__ import annotations

from typing import Any

import pytest

from burnd.harness.tool_calls import creates_pull_request, edit_hash, patch_hash, pull_request_in
from burnd.records import ToolCall
from tests.harness.claude_code.transcript import Transcript, call
from tests.harness.collect import read


def reverse(change: str | None) -> str:
    assert change is not None
    before, after = change.split(">")
    return f"{after}>{before}"


def edited(old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"old_string": old, "new_string": new, **more}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (edited("foo()", "bar()"), edited("bar()", "foo()")),
        (edited("foo()", "bar()"), edited("bar()", "foo()", replace_all=True)),
        (edited("", "bar()"), edited("bar()", "")),
        ({"oldString": "a", "newString": "b"}, {"oldString": "b", "newString": "a", "replaceAll": True}),
        ({"edits": [edited("a", "b"), edited("c", "d")]}, {"edits": [edited("d", "c"), edited("b", "a")]}),
    ],
)
def test_an_edit_and_its_reverse(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert edit_hash("/a.py", one) == reverse(edit_hash("/a.py", other))
    assert edit_hash("/a.py", one) != edit_hash("/a.py", other)
    assert edit_hash("/b.py", one) != reverse(edit_hash("/a.py", other))


def test_an_edit_goes_on_where_another_left_off() -> None:
    """An edit may replace text that another inserted; text in too many places is not followed."""

    def sides(old: str, new: str) -> tuple[str, str]:
        before, _, after = (edit_hash("/a.py", edited(old, new)) or "").partition(">")
        return before, after

    assert sides("a", "b")[1] == sides("b", "c")[0]
    assert sides("c", "a")[1] == sides("a", "b")[0]
    assert sides("a", "")[1] != sides("", "c")[0]
    assert sides("a", "")[1] == sides("", "a")[0]


@pytest.mark.parametrize("given", [{}, {"content": "x"}, edited("a", "a"), {"old_string": 1, "new_string": "b"},
                                   {"edits": []}, {"edits": [edited("a", "b"), 7]}, {"edits": "all"}])  # fmt: skip
def test_what_names_no_change_has_no_hash(given: dict[str, Any]) -> None:
    assert edit_hash("/a.py", given) is None
    assert edit_hash(None, edited("a", "b")) is None


def test_patches() -> None:
    def patch(*lines: str) -> str | None:
        return patch_hash("a.py", "\n".join(("*** Begin Patch", "*** Update File: a.py", "@@", " def f():", *lines)))

    assert patch("-  foo()", "+  bar()") == reverse(patch("-  bar()", "+  foo()"))
    assert patch("-  foo()", "+  bar()") != reverse(patch("-  bar()", "+  baz()"))
    assert patch_hash("a.py", None) is None


def test_a_transcripts_edits() -> None:
    """The hash stays with the call when its result comes."""
    t = Transcript()
    t.calls("m1", call("c1", "Edit", file_path="/a.py", **edited("foo()", "bar()")))
    t.result("c1", "done")
    t.calls("m2", call("c2", "Edit", file_path="/a.py", **edited("bar()", "foo()", replace_all=True)))
    calls: list[ToolCall] = [read(t.lines).turn(name).tool_calls[0] for name in ("m1", "m2")]
    assert calls[0].edit_hash == reverse(calls[1].edit_hash)
    assert calls[0].result_hash is not None


@pytest.mark.parametrize(
    ("command", "creates"),
    [
        ("gh pr create --fill", True),
        ("git push -u origin x && gh  pr create -t 'a b'", True),
        ("glab mr create", True),
        ("cd app && GH_TOKEN=x timeout 60 gh -R acme/shop pr create --fill", True),
        ("bash -lc 'cd app && gh pr create --fill'", True),
        ("gh pr create --title 'a' --body \"$(cat <<'EOF'\nIt's done.\nEOF\n)\"", True),
        ("url=$(gh pr create --fill); echo $url", True),
        ("git commit -m 'run gh pr create later'", False),
        ("cat > notes <<EOF\ngh pr create\nEOF", False),
        ("gh pr view 12", False),
        ("echo gh pr created", False),
        (["gh", "pr", "create"], False),
        (None, False),
    ],
)
def test_commands_that_make_a_pull_request(command: Any, creates: bool) -> None:
    assert creates_pull_request(command) is creates


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("Creating...\nhttps://github.com/acme/shop/pull/12\n", "https://github.com/acme/shop/pull/12"),
        ("https://github.com/a/b/pull/1 https://github.com/a/b/pull/2", "https://github.com/a/b/pull/2"),
        (
            "https://git.example.org/team/sub/app/-/merge_requests/7",
            "https://git.example.org/team/sub/app/-/merge_requests/7",
        ),
        ("https://github.com/acme/shop/pull/new/branch", None),
        ("javascript:alert(1)", None),
    ],
)
def test_the_address_of_a_pull_request(text: str, address: str | None) -> None:
    """The last one that a command printed."""
    assert pull_request_in(text) == address
