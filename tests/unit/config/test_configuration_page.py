from __future__ import annotations

from pathlib import Path

from moldau.config.docs import configuration_page

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_configuration_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == configuration_page(), "stale: python -m moldau.config > docs/configuration.md"
