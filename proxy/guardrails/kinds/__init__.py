"""The kinds of guards that look for themselves, one file each, and the table of all kinds."""
