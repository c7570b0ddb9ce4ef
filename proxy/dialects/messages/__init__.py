"""Anthropic's Messages: responses, and the conversion of requests from and to chat."""
