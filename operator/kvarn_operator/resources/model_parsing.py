"""`spec` of a ModelService but for its pools: model, engine, slo, budget, rollout. Called by `service_parsing`."""

import re

from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.model_service import (
    EngineOptions,
    Model,
    ModelCache,
    ModelSource,
    Objective,
    Rollout,
    SecretKey,
    SourceKind,
)
from kvarn_operator.scaling.spec import Budget, BudgetPolicy

ENGINES = ("torch", "simulated")
DTYPES = ("auto", "bfloat16", "float16", "float32")

HUB_ID = r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?"
INNER_PATH = r"([A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*)?"
"""Relative, and never upwards."""

SERVED_NAME = r"[^,]+"
"""Routers are told all names at once, with commas between them."""

URL = r"https?://[^/\s]+.*"
SIZE = r"[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])?"

_WORKER_MAX_BATCH_TOKENS = 512
_WORKER_MAX_SEQUENCES = 64
"""The worker's own defaults, which hold where the user gives only one of the two."""


def parse_model(fields: Fields) -> Model:
    secret = fields.section("secretRef")
    model = Model(
        source=_source(fields.section("source")),
        revision=fields.text("revision", longest=253),
        served_names=_served_names(fields),
        secret=_secret(secret) if fields.has("secretRef") else None,
        cache=_cache(fields.section("cache")),
    )
    if model.source.kind is not SourceKind.HUB:
        for key, given in (("secretRef", model.secret is not None), ("revision", model.revision)):
            if given:
                raise fields.error(key, "is for models of a hub, and source is none")
    return model


def _source(fields: Fields) -> ModelSource:
    given = [kind for kind in SourceKind if fields.has(kind.value)]
    if len(given) > 1:
        names = ", ".join(kind.value for kind in given)
        raise fields.error("", f"names {len(given)} sources ({names}); give one")
    kind = given[0] if given else SourceKind.EMBEDDED
    chosen = fields.section(kind.value)
    match kind:
        case SourceKind.EMBEDDED:
            return ModelSource()
        case SourceKind.HUB:
            return ModelSource(kind, chosen.required_text("id", HUB_ID))
        case SourceKind.PVC:
            return ModelSource(kind, chosen.required_text("claimName"), chosen.text("path", pattern=INNER_PATH))
        case SourceKind.IMAGE:
            reference = chosen.required_text("reference", longest=1024)
            return ModelSource(kind, reference, chosen.text("path", pattern=INNER_PATH))
        case SourceKind.URL:
            return ModelSource(kind, chosen.required_text("url", URL, longest=2048))


def _served_names(fields: Fields) -> tuple[str, ...]:
    names = fields.texts("servedNames")
    if len(names) > 16:
        raise fields.error("servedNames", f"has {len(names)} names, at most 16 are allowed")
    for index, name in enumerate(names):
        if len(name) > 253 or name in names[:index]:
            raise fields.error(f"servedNames[{index}]", "is given twice, or has more than 253 characters")
        if re.fullmatch(SERVED_NAME, name) is None:
            raise fields.error(f"servedNames[{index}]", f"{name!r} does not fit the pattern {SERVED_NAME}")
    return names


def _secret(fields: Fields) -> SecretKey:
    return SecretKey(fields.required_text("name"), fields.text("key", "token", pattern=r".+", longest=253))


def _cache(fields: Fields) -> ModelCache:
    size = fields.values.get("sizeLimit")
    cache = ModelCache(
        fields.text("claimName", longest=253),
        str(size) if isinstance(size, int) else fields.text("sizeLimit", pattern=SIZE),
    )
    if fields.has("claimName") and fields.has("sizeLimit"):
        raise fields.error("sizeLimit", "is for the emptyDir that is used without claimName; give one of the two")
    return cache


def parse_engine(fields: Fields) -> EngineOptions:
    default = EngineOptions()
    options = EngineOptions(
        engine=fields.word("type", default.engine, ENGINES),
        dtype=fields.word("dtype", default.dtype, DTYPES),
        block_size=fields.integer("blockSize", default.block_size, 1, 1024),
        max_model_len=fields.optional_integer("maxModelLen"),
        max_batch_tokens=fields.optional_integer("maxBatchTokens"),
        max_sequences=fields.optional_integer("maxSequences"),
        num_blocks=fields.optional_integer("numBlocks"),
        kv_memory_gib=fields.optional_number("kvMemoryGiB", 0, 1e6),
        threads=fields.optional_integer("threads", 1, 1024),
    )
    if options.kv_memory_gib == 0:
        raise fields.error("kvMemoryGiB", "is 0, which leaves no room for any request")
    if options.num_blocks is not None and options.kv_memory_gib is not None:
        raise fields.error("numBlocks", "and kvMemoryGiB both say how large the KV cache is; give one of the two")
    tokens = options.max_batch_tokens or _WORKER_MAX_BATCH_TOKENS
    sequences = options.max_sequences or _WORKER_MAX_SEQUENCES
    if tokens < sequences:
        raise fields.error("maxBatchTokens", f"({tokens}) is below maxSequences ({sequences}); raise it")
    return options


def parse_objective(fields: Fields) -> Objective:
    default = Objective()
    percentile = fields.optional_number("percentile", 50, 99.9)
    return Objective(
        ttft_s=fields.integer("ttftMs", round(default.ttft_s * 1000), 1, 3_600_000) / 1000,
        itl_s=fields.integer("itlMs", round(default.itl_s * 1000), 1, 60_000) / 1000,
        percentile=default.percentile if percentile is None else percentile,
    )


def parse_budget(fields: Fields) -> Budget:
    gpus = fields.optional_integer("gpus", 0, 100_000)
    if gpus is None:
        raise fields.error("gpus", "is required")
    return Budget(gpus, fields.choice("policy", BudgetPolicy.PROPORTIONAL))


def parse_rollout(fields: Fields) -> Rollout:
    default = Rollout()
    percent = fields.integer("ratioTolerancePercent", round(default.ratio_tolerance * 100), 0, 100)
    rollout = Rollout(
        max_surge=fields.integer("maxSurge", default.max_surge, 0, 1000),
        max_unavailable=fields.integer("maxUnavailable", default.max_unavailable, 0, 1000),
        ratio_tolerance=percent / 100,
    )
    if rollout.max_surge + rollout.max_unavailable == 0:
        raise fields.error("maxSurge", "and maxUnavailable are both 0, so that nothing can be replaced; raise one")
    return rollout
