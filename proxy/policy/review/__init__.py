"""What operators ask about policies: check, explain, diff, candidate."""
