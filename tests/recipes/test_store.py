"""The recipe for a store, followed in a copy: one of kept answers, and one of the ledger."""

from __future__ import annotations

import json
from pathlib import Path

from tests.recipes.copies import copied


def test_a_store_is_one_file_and_its_word(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A store", "acme")
    copy.add("proxy/cache/acme.py", "cache_store.py")
    copy.add_item("proxy/types/cache_rule.py", "CACHE_STORES", '"acme"')
    opened = "proxy/app/stores.py"
    copy.add_import(opened, "from proxy.cache.acme import Acme")
    copy.add_at_end(
        opened,
        "cache_backends",
        "acme = await context.opened.enter_async_context(Acme())",
        'backends["acme"] = CacheBackend(acme, secret)',
    )
    copy.add("proxy/ledger/acme.py", "ledger_store.py")
    table = "proxy/ledger/__init__.py"
    copy.add_import(table, "from proxy.ledger.acme import AcmeStore")
    copy.add_item(
        table, "STORES", '"acme": lambda path, run, on_crash, on_new_file: AcmeStore(path)'
    )
    copy.add_item("proxy/settings.py", "LEDGERS", '"acme"')

    schema = json.loads(copy.run("proxy", "schema"))
    copy.test("tests/recipes/added/check_stores.py")

    _, keys = schema["$defs"]["CacheConfig"]["anyOf"]
    assert "acme" in keys["properties"]["store"]["enum"]
