"""`/debug/workers` and `/debug/decisions`: what routing believes, and why it chose. Handed to the API by `app`."""

from collections import Counter
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from kvarn_router.decisions import DecisionLog
from kvarn_router.holding import Holding, UncachedTokens
from kvarn_router.routing.policy import Decision, Ranked
from kvarn_router.routing.prefix_index import PrefixIndex
from kvarn_router.workers import LiveWorker, Role, WorkerTable


class DebugRoutes:
    def __init__(
        self,
        table: WorkerTable,
        index: PrefixIndex,
        decisions: DecisionLog,
        holding: Holding,
        uncached: UncachedTokens,
    ) -> None:
        self._table = table
        self._index = index
        self._decisions = decisions
        self._holding = holding
        self._uncached = uncached

    def routes(self) -> list[Route]:
        return [Route("/debug/workers", self._workers_page), Route("/debug/decisions", self._decisions_page)]

    async def _workers_page(self, request: Request) -> JSONResponse:
        workers = sorted(self._table.all(), key=lambda worker: worker.identity.worker_id)
        refused = [{"address": address, "reason": reason} for address, reason in self._table.refusals]
        page = {
            "workers": [self._worker(worker) for worker in workers],
            "refused": refused,
            "layouts": self._layouts(),
            "requests_held": self._holding.count,
            "uncached_tokens_in_flight": self._uncached.in_flight,
        }
        return JSONResponse(page)

    async def _decisions_page(self, request: Request) -> JSONResponse:
        return JSONResponse({"decisions": [_decision(decision) for decision in self._decisions.newest_first()]})

    def _layouts(self) -> list[dict[str, object]]:
        """How many workers of each layout can take a request; without both roles there is no hand-off in it."""
        able = Counter(
            (worker.identity.layout_fingerprint, worker.identity.role)
            for worker in self._table.all()
            if worker.is_candidate
        )
        fingerprints = sorted({worker.identity.layout_fingerprint for worker in self._table.all()})
        return [
            {
                "layout_fingerprint": fingerprint,
                "prefill": able[fingerprint, Role.PREFILL],
                "decode": able[fingerprint, Role.DECODE],
            }
            for fingerprint in fingerprints
        ]

    def _worker(self, worker: LiveWorker) -> dict[str, object]:
        identity, load = worker.identity, worker.load
        return {
            "worker_id": identity.worker_id,
            "incarnation": identity.incarnation,
            "role": identity.role.value,
            "address": identity.address,
            "layout_fingerprint": identity.layout_fingerprint,
            "render_fingerprint": identity.render_fingerprint,
            "max_model_len": identity.max_model_len,
            "vocab_size": identity.vocab_size,
            "dtype": identity.layout.dtype,
            "block_size": identity.layout.block_size,
            "draining": worker.draining or worker.cordoned,
            "suspect": worker.suspect,
            "last_event_age_s": round(self._table.event_age_s(worker), 3),
            "in_flight": worker.in_flight,
            "in_flight_tokens": worker.in_flight_tokens,
            "kv_usage": round(worker.kv_usage, 4),
            "running": load.running,
            "waiting": load.waiting,
            "blocks_total": load.blocks_total,
            "blocks_in_use": load.blocks_in_use,
            "blocks_cached": load.blocks_cached,
            "queued_prefill_tokens": load.queued_prefill_tokens,
            "prefill_tokens_per_s": load.prefill_tokens_per_s,
            "decode_step_s": load.decode_step_s,
            "index_sequence": self._index.sequence(identity.incarnation),
            "index_blocks": self._index.size(identity.incarnation),
            "index_predicted_blocks": self._index.predicted_size(identity.incarnation),
        }


def _decision(decision: Decision) -> dict[str, object]:
    return {
        "request_id": decision.request_id,
        "layout_fingerprint": decision.layout.fingerprint,
        "blocks": decision.num_blocks,
        "decode": _candidates(decision.decode),
        "prefill": _candidates(decision.prefill),
        "explain": decision.explain(),
    }


def _candidates(ranked: Sequence[Ranked]) -> list[dict[str, object]]:
    return [
        {
            "worker_id": candidate.view.worker_id,
            "incarnation": candidate.view.incarnation,
            "cached_blocks": candidate.view.cached_blocks,
            "in_flight": candidate.view.in_flight,
            "in_flight_tokens": candidate.view.in_flight_tokens,
            "waiting": candidate.view.waiting,
            "kv_usage": candidate.view.kv_usage,
            "saturated": candidate.saturated,
            "alone": candidate.is_alone,
        }
        for candidate in ranked
    ]
