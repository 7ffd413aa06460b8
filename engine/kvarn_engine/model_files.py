"""Which files of a published model are of use here, by name. Shared by everything that fetches or copies models."""

from fnmatch import fnmatch

RENDER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json")
"""What decides how text becomes token ids."""

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf")

TEXT_PATTERNS = ("*.json", "*.jinja", "*.model", "*.txt")
MODEL_PATTERNS = (*TEXT_PATTERNS, "*.safetensors")
"""Never pickled weights and never code: a model must not be able to run anything."""


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
