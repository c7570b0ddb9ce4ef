"""OpenAI's Responses: responses, stored state, and the conversion of requests from and to chat."""
