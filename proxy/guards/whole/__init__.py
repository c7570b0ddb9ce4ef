"""Whole texts: inspected sheet by sheet, with the parts of a message joined."""
