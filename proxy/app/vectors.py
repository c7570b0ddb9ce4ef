"""What compares texts by what they are about: the model's threads, and the cache's index."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from proxy.app.context import Context, since_epoch
from proxy.cache.semantic import SemanticIndex
from proxy.cache.vector_index import VectorIndex
from proxy.embedding import Embeddings
from proxy.ports import Embedder

THREADS = 1  # each turns some 200 short texts a second into vectors, on a core of its own


def embeddings(context: Context) -> Embeddings:
    """Make ready to turn texts into vectors; a model is loaded by the first call that needs it."""
    pool = context.opened.enter_context(ThreadPoolExecutor(THREADS, "embeddings"))
    log = context.log
    return Embeddings(
        pool=pool,
        now=time.monotonic,
        tell=context.metrics.embedded,
        broken=lambda kind: log.error("embedding.failed", type=kind),
    )


def alike(context: Context, embedder: Embedder) -> SemanticIndex:
    """Return what finds questions in other words. Their vectors take half of a store's bytes."""
    held = partial(context.metrics.held, "vectors")
    nearest = VectorIndex(context.settings.cache_bytes // 2, since_epoch, held)
    return SemanticIndex(
        embedder=embedder, vectors=nearest, on_lookup=context.metrics.looked, now=since_epoch
    )
