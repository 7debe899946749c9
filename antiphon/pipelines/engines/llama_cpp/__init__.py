"""llama.cpp behind the shape of an autoregressive engine: one context, a sequence per conversation, batched decode.

Nothing here is imported by the package itself; ``engine`` loads the library.
"""
