"""The record of a call: its attempts, their usage and cost, and its summary."""
