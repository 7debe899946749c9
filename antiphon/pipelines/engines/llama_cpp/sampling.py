"""A chain of llama.cpp's samplers for one request."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

PENALTY_WINDOW = 64


@dataclass(frozen=True, slots=True)
class SamplerSpec:
    """``temperature`` 0 is greedy. ``grammar`` is GBNF with a rule ``root``; it is masked before all else."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    grammar: str = ""


def build(library: Any, vocabulary: Any, spec: SamplerSpec) -> Any:
    """A LlamaSampler. The grammar must be valid: one that does not parse ends in the C library (``grammar`` makes ours)."""
    chain = library.LlamaSampler(library.LlamaSamplerChainParams())
    if spec.grammar:
        chain.add_grammar(vocabulary, spec.grammar, "root")
    if spec.repetition_penalty != 1.0:
        chain.add_penalties(PENALTY_WINDOW, spec.repetition_penalty, 0.0, 0.0)
    if spec.temperature <= 0.0:
        chain.add_greedy()
        return chain
    if spec.top_k > 0:
        chain.add_top_k(spec.top_k)
    if spec.top_p < 1.0:
        chain.add_top_p(spec.top_p, 1)
    if spec.min_p > 0.0:
        chain.add_min_p(spec.min_p, 1)
    chain.add_temp(spec.temperature)
    chain.add_dist(secrets.randbits(32) if spec.seed is None else spec.seed & 0xFFFFFFFF)
    return chain
