"""What LiteLLM says that a model is for, by the ``mode`` of its ``model_info``: the endpoint of its
target, or the paths that its deployment passes on.

Source: LiteLLM's documents on ``model_info``, and its table of models.
"""

from __future__ import annotations

from typing import Any

SERVED = frozenset({"chat", "embedding", "responses", "completion"})
"""Modes that need no other path: calls of these kinds are read here."""
ENDPOINTS = {"completion": "completions", "responses": "responses"}
"""Modes of a target that serves one kind of call alone."""
PATHS: dict[str, tuple[str, ...]] = {
    "audio_transcription": ("/v1/audio/transcriptions", "/v1/audio/translations"),
    "audio_speech": ("/v1/audio/speech",),
    "image_generation": ("/v1/images/generations",),
    "image_edit": ("/v1/images/edits",),
    "moderation": ("/v1/moderations",),
    "rerank": ("/v1/rerank",),
}
"""Modes whose calls are passed on, by their paths."""
FORMS = frozenset({"audio_transcription", "image_edit"})
"""Modes whose calls are forms, which pass as they come, with the model that they name."""
COHERES_RERANK = "/v2/rerank"


def passed_paths(mode: str, provider: str | None) -> list[Any]:
    """Return the ``passthrough`` of a deployment; empty for a mode that needs none."""
    found: list[Any] = list(PATHS.get(mode, ()))
    if mode == "rerank":
        path: dict[str, Any] = {"path": found[0], "idempotent": True}
        found = [{**path, "to": COHERES_RERANK} if provider == "cohere" else path]
    return found
