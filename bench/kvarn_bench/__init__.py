"""Reproducible benchmarks: `python -m kvarn_bench handoff|engine|serve`. Each prints the peer's figure beside ours."""
