"""The shop of tests/console."""

from tests.console.conftest import shop

__all__ = ["shop"]
