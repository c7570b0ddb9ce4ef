"""Anthropic's Messages beside OpenAI's chat: requests and answers, both ways.

A call of a Messages client keeps its own form, and crosses only where its upstream speaks another.
Its answers are in chat's form as all are; what chat has no word for goes with them as ``block``.
"""
