"""Roles played by any OpenAI-compatible server: SGLang, vLLM, Ollama, llama.cpp's own, or OpenAI."""
