"""OpenAI's Responses beside its chat: requests and answers, both ways.

A call of a Responses client keeps its own form, and crosses only where its target has no such
endpoint. Its answers are in chat's form as all are; what chat has no word for goes with them.
"""
