"""What the demo prints: examples that work as they are pasted."""

from __future__ import annotations

KEY = "hr-demo-key"


def examples(listen: str, admin: str) -> str:
    """Return the examples for the addresses that the demo really has."""
    return f"""
Headrace is ready.  Data port {listen}, admin port {admin}.  Ctrl-C stops it.

A completion, whole:

  curl http://{listen}/v1/completions -H 'Authorization: Bearer {KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": "support-chat", "prompt": "The capital of France is",
         "max_tokens": 8, "temperature": 0}}'

A chat, streamed:

  curl -N http://{listen}/v1/chat/completions -H 'Authorization: Bearer {KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": "support-chat", "stream": true,
         "messages": [{{"role": "user", "content": "Say hello."}}]}}'

Anthropic's Messages:

  curl http://{listen}/v1/messages -H 'x-api-key: {KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": "support-chat", "max_tokens": 16,
         "messages": [{{"role": "user", "content": "Say hello."}}]}}'

OpenAI's Responses (the model here keeps none, so nothing can lean on one by its id):

  curl http://{listen}/v1/responses -H 'Authorization: Bearer {KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": "support-chat", "max_output_tokens": 16, "input": "Say hello."}}'

The OpenAI SDK (pip install openai):

  python - <<'PY'
  from openai import OpenAI
  client = OpenAI(base_url="http://{listen}/v1", api_key="{KEY}")
  for chunk in client.chat.completions.create(model="support-chat", stream=True,
          messages=[{{"role": "user", "content": "Name three colours."}}]):
      if chunk.choices:
          print(chunk.choices[0].delta.content or "", end="", flush=True)
  print()
  PY

Two models at once:

  curl http://{listen}/v1/completion -H 'Authorization: Bearer {KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": ["smol-base", "smol-chat"], "prompt": "Once upon a time", "max_tokens": 12}}'

What it counted:

  curl http://{admin}/metrics
"""
