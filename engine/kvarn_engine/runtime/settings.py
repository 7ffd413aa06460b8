"""What a runner needs to know at load. Filled by the worker processes' settings loader."""

from dataclasses import dataclass

from kvarn_engine.model_folder import EMBEDDED_MODEL


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    model: str = EMBEDDED_MODEL
    """Model folder, hub id, address of an archive, or `smollm2-135m` for the embedded model."""

    model_revision: str = ""
    """Branch, tag or commit of a hub model; empty: its default branch."""

    dtype: str = "auto"
    """Type of weights and KV: bfloat16, float16, float32; auto is float32 on CPUs that emulate bfloat16."""

    num_blocks: int = 0
    """KV blocks; 0 sizes the store by kv_memory_gib."""

    kv_memory_gib: float = 1.0
    """Memory of the KV store, in GiB, when num_blocks is 0."""

    block_size: int = 16
    """Tokens in one KV block."""

    max_model_len: int = 0
    """Longest sequence, prompt and output together; 0 is the model's own limit."""

    threads: int = 1
    """CPU threads for matrix products."""

    device: str = "auto"
    """cpu, cuda, cuda:N, or auto (cuda when there is one)."""

    attention: str = "auto"
    """Attention backend: cpu, cuda, reference (slow), or auto (by device)."""
