"""Commands for prices: list the current ones, check them, and refresh the price table."""
