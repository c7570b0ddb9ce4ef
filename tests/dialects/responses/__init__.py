"""Responses in chat's form and back."""
