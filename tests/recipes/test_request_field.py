"""The recipe for a request field, followed in a copy: a row is all that a field needs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.recipes.copies import copied

NOTES = '_row("acme_notes", {"chat responses": string()}, text="content", unknown="refuse")'
STYLE = '_row("acme_style", {"chat": string()}, elsewhere={"messages": "output_config.acme_style"})'
SESSION = '_row("acme_session", {"chat": string()}, cache="caller")'
DATA = 'Member("acme_data", text="arguments", free_form=("tools[]",))'


def test_a_request_field_is_one_row(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A request field", "acme")
    for row in (NOTES, STYLE, SESSION):
        copy.add_item("proxy/fields/field_table.py", "ROWS", row)
    copy.add_item("proxy/fields/member_table.py", "ROWS", DATA)

    copy.run("tools.docs")
    copy.test(
        "tests/recipes/added/check_request_field.py",
        "tests/fields/test_field_table.py",
        "tests/test_docs.py::test_generated_parts_are_up_to_date",
    )

    page = copy.read("docs/fields.md")
    assert re.search(r"`acme_notes`.* \| content \| yes \| refused \|", page)
    assert re.search(r"`acme_session`.* \| other \| with `by_user` \| dropped \|", page)
    assert re.search(r"^\| [^|]* \|[^|]*`acme_style`[^|]*\|", page, re.MULTILINE)
