"""What is known of a call: its attempts, what they used and cost, and its summary."""
