"""Drives LangChain's clients of OpenAI and of Anthropic."""

from __future__ import annotations

from tests.sdks.results import Step, plain


def langchain(base: str, key: str, step: Step) -> Step:
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

    fields = {**step["with"], "base_url": f"{base}/v1", "api_key": key, "max_retries": 0}
    if step["do"] == "embeddings":
        result = OpenAIEmbeddings(check_embedding_ctx_length=False, **fields)
        return {"ok": True, "text": "", "data": result.embed_documents(["hello"])}
    stream = fields.pop("stream", False)
    model = OpenAI(**fields) if step["do"] == "completion" else ChatOpenAI(**fields)
    parts = list(model.stream(step["say"])) if stream else [model.invoke(step["say"])]
    texts = [part if isinstance(part, str) else str(part.content) for part in parts]
    return {"ok": True, "text": "".join(texts), "data": texts}


def langchain_responses(base: str, key: str, step: Step) -> Step:
    from langchain_openai import ChatOpenAI

    body = dict(step["with"])
    stream, tools = body.pop("stream", False), body.pop("tools", [])
    # A hosted tool makes LangChain use Responses.
    model = ChatOpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0, **body).bind_tools(tools)
    if stream:
        parts = list(model.stream(step["say"]))
        answer = sum(parts[1:], parts[0])
    else:
        answer = model.invoke(step["say"])
    usage = answer.usage_metadata
    return {"ok": True, "text": answer.text, "calls": answer.tool_calls, "usage": usage}


def langchain_anthropic(base: str, key: str, step: Step) -> Step:
    from langchain_anthropic import ChatAnthropic

    fields = {"max_retries": 0, **step["with"]}
    stream = fields.pop("stream", False)
    model = ChatAnthropic(base_url=base, api_key=key, **fields)
    if step.get("tools"):
        model = model.bind_tools(step["tools"])
    if not stream:
        answer = model.invoke(step["say"])
    else:
        parts = list(model.stream(step["say"]))
        answer = sum(parts[1:], parts[0])
    return {
        "ok": True,
        "text": answer.text if isinstance(answer.text, str) else answer.text(),
        "calls": [[tool_call["name"], tool_call["args"]] for tool_call in answer.tool_calls],
        "data": plain(answer),
        "usage": answer.usage_metadata,
    }
