"""Examples that the demo prints. Each can be pasted into a shell."""

from __future__ import annotations

DEMO_KEY = "hr-demo-key"


def format_examples(listen: str, admin: str) -> str:
    return f"""
Headrace is ready at http://{listen} (console and metrics: http://{admin}).
Press Ctrl-C to stop. Paste any of these examples into another terminal:

Completion:

  curl http://{listen}/v1/completions -H 'Authorization: Bearer {DEMO_KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": "support-chat", "prompt": "The capital of France is",
         "max_tokens": 8, "temperature": 0}}'

Streamed chat completion:

  curl -N http://{listen}/v1/chat/completions -H 'Authorization: Bearer {DEMO_KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": "support-chat", "stream": true,
         "messages": [{{"role": "user", "content": "Say hello."}}]}}'

Anthropic Messages API:

  curl http://{listen}/v1/messages -H 'x-api-key: {DEMO_KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": "support-chat", "max_tokens": 16,
         "messages": [{{"role": "user", "content": "Say hello."}}]}}'

OpenAI Responses API (the model stores nothing, so `previous_response_id` is rejected):

  curl http://{listen}/v1/responses -H 'Authorization: Bearer {DEMO_KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": "support-chat", "max_output_tokens": 16, "input": "Say hello."}}'

OpenAI SDK (pip install openai):

  python - <<'PY'
  from openai import OpenAI
  client = OpenAI(base_url="http://{listen}/v1", api_key="{DEMO_KEY}")
  for chunk in client.chat.completions.create(model="support-chat", stream=True,
          messages=[{{"role": "user", "content": "Name three colors."}}]):
      if chunk.choices:
          print(chunk.choices[0].delta.content or "", end="", flush=True)
  print()
  PY

One prompt to two models:

  curl http://{listen}/v1/completion -H 'Authorization: Bearer {DEMO_KEY}' \\
    -H 'Content-Type: application/json' \\
    -d '{{"model": ["smol-base", "smol-chat"], "prompt": "Once upon a time", "max_tokens": 12}}'

Metrics of these calls:

  curl http://{admin}/metrics
"""
