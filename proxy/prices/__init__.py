"""Commands for prices: list the current ones, and refresh the price table."""
