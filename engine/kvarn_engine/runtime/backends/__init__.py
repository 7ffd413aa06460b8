"""Attention backends behind `runtime.attention.AttentionBackend`."""
