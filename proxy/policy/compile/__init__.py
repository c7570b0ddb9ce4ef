"""From the parsed configuration to the snapshot that decisions are made by."""
