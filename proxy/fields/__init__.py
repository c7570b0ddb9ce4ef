"""Request fields: their types, the table that declares them, and rules for them at any depth."""
