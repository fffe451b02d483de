"""The Grafana dashboard and the compose file: complete, and with names that are there. tests/real runs the queries."""

from __future__ import annotations

import re

from burnctl.push.clickhouse_tables import statements
from tests.packaging.dashboard import FOLDER, dashboard, queries

_MADE = r"CREATE (?:TABLE IF NOT EXISTS|OR REPLACE VIEW) (\w+)"


def test_every_query_reads_a_table_or_view_of_a_push() -> None:
    made = {found[1] for one in statements() if (found := re.match(_MADE, one))}
    for title, sql in queries().items():
        tables = set(re.findall(r"FROM (\w+)", sql))
        assert tables, title
        assert tables <= made, title


def test_panels_have_their_own_place_and_number() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_compose_file_mounts_what_is_there() -> None:
    text = (FOLDER / "fleet" / "compose.yaml").read_text()
    mounted = re.findall(r"- (\.[\w./-]*):", text)
    assert len(mounted) == 3
    for path in mounted:
        assert (FOLDER / "fleet" / path).resolve().exists(), path
    ports = re.findall(r'- "(.*:\d+)"', text)
    assert ports == ["127.0.0.1:8123:8123", "127.0.0.1:3000:3000"]
    source = (FOLDER / "fleet" / "datasource.yaml").read_text()
    names = [one["current"]["value"] for one in dashboard()["templating"]["list"] if one["type"] == "datasource"]
    assert f"uid: {names[0]}\n" in source
