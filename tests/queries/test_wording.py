"""What causes are called."""

from __future__ import annotations

import pytest

from burnd.queries.wording import within


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
