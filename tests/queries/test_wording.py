"""What causes are called."""

from __future__ import annotations

import pytest

from burnd.queries.wording import about, within


@pytest.mark.parametrize(
    ("path", "project", "shown"),
    [
        ("/p/src/a.py", "/p", "src/a.py"),
        ("/p/src/a.py", "/p/", "src/a.py"),
        ("/p", "/p", "."),
        ("/p/", "/p", "."),
        ("/pages/a.py", "/p", "/pages/a.py"),
        ("/p/a.py", None, "/p/a.py"),
        ("npm test", "/p", "npm test"),
        ("", "/", ""),
    ],
)
def test_a_place_in_the_project_is_named_from_there(path: str, project: str | None, shown: str) -> None:
    """Files by their place in the project, the project itself as a dot, all else as it is."""
    assert within(path, project) == shown


def test_a_command_is_named_by_what_was_run() -> None:
    """`other` stands for goals that have no name of their own here: nobody ran `make other`."""
    assert about("Bash", "make other", "/p") == "make"
    assert about("Bash", "npm test", "/p") == "npm test"
    assert about("Read", "/p/the other", "/p") == "the other"
    assert about("TodoWrite", None, "/p") is None
