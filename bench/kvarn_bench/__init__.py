"""Reproducible benchmarks: `python -m kvarn_bench handoff|engine|serve|scaling`. Each prints a peer's figure too."""
