"""Prometheus metrics of one worker, both roles. Names start with `kvarn_`; the registry belongs to the process.

Written to by wrappers (`worker_metered_runner`, the load sampler) and by the role's service at the end of a request.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kvarn_engine.serving.protocol import LoadReport
from kvarn_engine.serving.worker_requests import RequestGate

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class WorkerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter("kvarn_requests", "Requests by outcome", ["outcome"], registry=registry)
        self.ttft_s = Histogram(
            "kvarn_ttft_seconds", "Arrival here to first token", buckets=_SECONDS, registry=registry
        )
        self.itl_s = Histogram(
            "kvarn_itl_seconds", "Time between two tokens of a choice", buckets=_SECONDS, registry=registry
        )
        self.queue_s = Histogram(
            "kvarn_queue_seconds", "Time a request waited for room", buckets=_SECONDS, registry=registry
        )
        self.prompt_tokens = Counter("kvarn_prompt_tokens", "Prompt tokens of requests", registry=registry)
        self.prefix_hit_tokens = Counter(
            "kvarn_prefix_hit_tokens", "Prompt tokens found in a prefix cache", registry=registry
        )
        self.output_tokens = Counter("kvarn_output_tokens", "Tokens sent", registry=registry)
        self.preemptions = Counter("kvarn_preemptions", "Sequences preempted", registry=registry)
        self.handoff_bytes = Counter("kvarn_handoff_bytes", "KV bytes handed off", registry=registry)
        self.handoff_s = Histogram(
            "kvarn_handoff_seconds", "First to last frame of a hand-off", buckets=_SECONDS, registry=registry
        )
        self.handoff_exposed_s = Histogram(
            "kvarn_handoff_exposed_seconds", "First token to last block", buckets=_SECONDS, registry=registry
        )
        self.handoff_failures = Counter("kvarn_handoff_failures", "Attempts that a peer broke", registry=registry)
        self.step_s = Histogram("kvarn_step_seconds", "One step of the model", buckets=_SECONDS, registry=registry)
        self.batch_sequences = Histogram(
            "kvarn_batch_sequences", "Sequences in one step", buckets=_SIZES, registry=registry
        )
        self.batch_tokens = Histogram("kvarn_batch_tokens", "Tokens in one step", buckets=_TOKENS, registry=registry)
        self.kv_waste_ratio = Gauge(
            "kvarn_kv_waste_ratio", "Share of the batch's KV slots that hold no token", registry=registry
        )
        self.running = Gauge("kvarn_running_requests", "Requests that compute", registry=registry)
        self.waiting = Gauge("kvarn_waiting_requests", "Requests that wait", registry=registry)
        self.queued_prefill_tokens = Gauge(
            "kvarn_queued_prefill_tokens", "Uncached tokens still to compute", registry=registry
        )
        self.prefill_tokens_per_s = Gauge(
            "kvarn_prefill_tokens_per_second", "Measured prefill rate, 0 while unknown", registry=registry
        )
        self.kv_blocks = Gauge("kvarn_kv_blocks", "KV blocks by state", ["state"], registry=registry)
        self.in_flight = Gauge(
            "kvarn_requests_in_flight", "Requests or hand-offs between arrival and end", registry=registry
        )
        self.draining = Gauge("kvarn_draining", "1 when no new requests are taken", registry=registry)

    def watch_gate(self, gate: RequestGate) -> None:
        """Both gauges are read from the gate at each scrape, so a drained worker is never reported busy."""
        self.in_flight.set_function(lambda: gate.in_flight)
        self.draining.set_function(lambda: float(gate.draining))

    def set_load(self, load: LoadReport) -> None:
        self.running.set(load.running)
        self.waiting.set(load.waiting)
        self.queued_prefill_tokens.set(load.queued_prefill_tokens)
        self.prefill_tokens_per_s.set(load.prefill_tokens_per_s)
        self.kv_blocks.labels("in_use").set(load.blocks_in_use)
        self.kv_blocks.labels("cached").set(load.blocks_cached)
        self.kv_blocks.labels("total").set(load.blocks_total)
