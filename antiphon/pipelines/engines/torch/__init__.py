"""Autoregressive decoding on torch: checkpoints by prefix, a paged KV cache, rows of a batch, sampling.

Nothing here knows a model family. Importing this package imports nothing heavy; its modules import torch.
"""
