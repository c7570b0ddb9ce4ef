"""What guards match texts with: pattern sets, word lists, checksums, learned weights."""
