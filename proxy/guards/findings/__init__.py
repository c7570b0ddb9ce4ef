"""Findings: how a rule counts them, where it resumes reading, how they are masked."""
