"""What a call costs, as a ratio to a bare relay that is measured in the same run."""
