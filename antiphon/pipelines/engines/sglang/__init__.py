"""SGLang as an engine: token ids in, token ids out, from a running server or from its engine in this process."""
