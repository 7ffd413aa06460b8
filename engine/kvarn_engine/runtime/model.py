"""Loads a Hugging Face folder and decides whether our attention can compute it right.

What a configuration says is checked first; then a probe runs two tokens through the model and looks at every attention
call, so that layers which bypass our attention, share KV or differ in shape are refused whatever they are called.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kvarn_engine.core.errors import UnsupportedModel
from kvarn_engine.runtime.attention import ATTENTION_NAME, AttentionCall, register_attention
from kvarn_engine.runtime.kv_store import TORCH_DTYPES
from kvarn_engine.runtime.settings import RuntimeSettings

_log = logging.getLogger("kvarn.runtime")

_LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
_SUPPORTED_LAYERS = frozenset({"full_attention", "sliding_attention"})
_HARMLESS_EXTRAS = frozenset({"dropout", "position_ids", "is_causal", "use_cache", "cache"})


@dataclass(frozen=True, slots=True)
class LoadedModel:
    module: Any
    """A transformers causal language model, on its device, in evaluation mode."""

    dtype: str
    device: torch.device
    num_layers: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    vocab_size: int


@dataclass(slots=True)
class Probe:
    """Stands in for a step: records each attention call of one forward pass."""

    layers: list[int] = field(default_factory=list)
    windowed: set[int] = field(default_factory=set)
    shapes: set[tuple[int, int]] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def on_attention(
        self, call: AttentionCall, key: torch.Tensor, value: torch.Tensor, extras: dict[str, object]
    ) -> torch.Tensor:
        self.layers.append(call.layer)
        if call.window:
            self.windowed.add(call.layer)
        self.shapes.add((key.shape[1], key.shape[2]))
        if key.shape != value.shape:
            self.problems.append("K and V differ in shape (multi-head latent attention)")
        if call.query.shape[1] % key.shape[1]:
            self.problems.append("query heads are no multiple of KV heads")
        if extras.get("is_causal") is False:
            self.problems.append("attention is not causal")
        unknown = sorted(name for name, given in extras.items() if given is not None and not _is_harmless(name))
        if unknown:
            self.problems.append(f"attention takes {', '.join(unknown)}, which the kernels do not know")
        return call.query.new_zeros((*call.query.shape[:2], value.shape[2]))


def _is_harmless(extra: str) -> bool:
    """Keywords that transformers hands to attention functions and that change nothing in what they compute."""
    return extra in _HARMLESS_EXTRAS or extra.startswith("output_")


def load_model(folder: Path, settings: RuntimeSettings) -> LoadedModel:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    register_attention()
    device = _choose_device(settings.device)
    dtype = _choose_dtype(settings.dtype, device)
    config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    check_config(config)
    module = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=TORCH_DTYPES[dtype], attn_implementation=ATTENTION_NAME, local_files_only=True
    )
    module = module.to(device).eval()
    text = config.get_text_config()
    probe = run_probe(module, int(text.num_hidden_layers), device)
    num_kv_heads, head_dim = next(iter(probe.shapes))
    return LoadedModel(
        module=module,
        dtype=dtype,
        device=device,
        num_layers=len(probe.layers),
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_positions=int(text.max_position_embeddings),
        vocab_size=int(text.vocab_size),
    )


def check_config(config: Any) -> None:
    """Refuse what the configuration alone shows to be out of reach."""
    text = config.get_text_config()
    name = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModel(f"{name}: encoder-decoder models are not supported")
    rope = getattr(text, "rope_parameters", None) or {}
    per_layer = [value for value in rope.values() if isinstance(value, dict)]
    for parameters in (rope, *per_layer):
        kind = parameters.get("rope_type", "default")
        if kind in _LENGTH_DEPENDENT_ROPE:
            raise UnsupportedModel(f"{name}: {kind} RoPE changes with the length, so cached keys would go stale")
    kinds = set(getattr(text, "layer_types", None) or ()) - _SUPPORTED_LAYERS
    if kinds:
        raise UnsupportedModel(f"{name}: layers of type {', '.join(sorted(kinds))} are not supported")
    if getattr(text, "num_kv_shared_layers", 0):
        raise UnsupportedModel(f"{name}: layers that share KV are not supported")


def run_probe(module: Any, num_layers: int, device: torch.device) -> Probe:
    """Two tokens through the model, with every attention call looked at."""
    probe = Probe()
    tokens = torch.zeros((1, 2), dtype=torch.int64, device=device)
    positions = torch.arange(2, device=device).unsqueeze(0)
    name = module.config.model_type
    try:
        with torch.inference_mode():
            module(input_ids=tokens, position_ids=positions, use_cache=False, logits_to_keep=1, kvarn_step=probe)
    except TypeError as error:
        raise UnsupportedModel(f"{name}: does not pass our keyword on to its attention ({error})") from error
    if sorted(probe.layers) != list(range(num_layers)):
        raise UnsupportedModel(
            f"{name}: {len(set(probe.layers))} of {num_layers} layers went through our attention "
            "(linear attention, state space or shared layers)"
        )
    kinds = getattr(module.config.get_text_config(), "layer_types", None) or ()
    if kinds and probe.windowed != {layer for layer, kind in enumerate(kinds) if kind == "sliding_attention"}:
        probe.problems.append("sliding windows do not reach the attention as the configuration says")
    if len(probe.shapes) != 1:
        probe.problems.append("layers differ in KV heads or head size")
    if probe.problems:
        raise UnsupportedModel(f"{name}: {'; '.join(sorted(set(probe.problems)))}")
    return probe


def _choose_device(wanted: str) -> torch.device:
    if wanted != "auto":
        return torch.device(wanted)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _choose_dtype(wanted: str, device: torch.device) -> str:
    if wanted in TORCH_DTYPES:
        return wanted
    if wanted != "auto":
        raise UnsupportedModel(f"dtype {wanted} is unknown; choose one of auto, {', '.join(TORCH_DTYPES)}")
    if device.type != "cpu" or _cpu_multiplies_bfloat16():
        _log.info("dtype=bfloat16 reason=device-multiplies-it")
        return "bfloat16"
    _log.info("dtype=float32 reason=cpu-emulates-bfloat16")
    return "float32"


def _cpu_multiplies_bfloat16() -> bool:
    """AVX512-BF16 and AMX; without them prefill in bfloat16 takes several times as long as in float32."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
