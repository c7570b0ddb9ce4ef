"""What compares texts by what they are about: the model's threads, and the cache's index."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from proxy.app.site import Site, since_epoch
from proxy.cache.semantic import SemanticIndex
from proxy.cache.vector_index import VectorIndex
from proxy.embedding import Embeddings
from proxy.ports import Embedder

THREADS = 1  # each turns some 200 short texts a second into vectors, on a core of its own


def embeddings(site: Site) -> Embeddings:
    """Make ready to turn texts into vectors; a model is loaded by the first call that needs it."""
    pool = site.opened.enter_context(ThreadPoolExecutor(THREADS, "embeddings"))
    log = site.log
    return Embeddings(
        pool,
        time.monotonic,
        site.metrics.embedded,
        lambda kind: log.error("embedding.failed", type=kind),
    )


def semantic_index(site: Site, embedder: Embedder) -> SemanticIndex:
    """Give what finds questions in other words. Their vectors take half of what a store takes."""
    held = partial(site.metrics.held, "vectors")
    nearest = VectorIndex(site.settings.cache_bytes // 2, since_epoch, held)
    return SemanticIndex(embedder, nearest, site.metrics.looked, since_epoch)
