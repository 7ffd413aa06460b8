"""Small parts of the workers: the gate, the metered runner, request checks, peer channels."""

import asyncio
import contextlib
from pathlib import Path

import grpc.aio
import pytest
from kvarn_decode.peers import MAX_CHANNELS, PeerChannels
from kvarn_decode.request import Peer, read_request
from kvarn_engine.core.errors import Draining
from kvarn_engine.core.ids import BlockIndex, WorkerId
from kvarn_engine.core.plan import Draw, PlanEntry, StepPlan
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.serving.simulated import SimulatedRunner, SimulatedSettings
from kvarn_engine.serving.worker_metered_runner import MeteredRunner, waste_ratio
from kvarn_engine.serving.worker_metrics import WorkerMetrics
from kvarn_engine.serving.worker_requests import RequestGate
from kvarn_engine.wire.channels import ChannelSettings
from kvarn_engine.wire.convert import sampling_to_proto
from kvarn_engine.wire.tls import TlsFiles
from kvarn_proto.v1 import common_pb2, decode_pb2
from prometheus_client import CollectorRegistry

from tests.support.certificates import make_authority

GREEDY = SamplingParams(max_tokens=4, temperature=0.0)


def entry(start: int, count: int, blocks: int, draws: tuple[Draw, ...] = ()) -> PlanEntry:
    return PlanEntry(list(range(count)), start, [BlockIndex(n) for n in range(blocks)], draws)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (StepPlan(()), 0.0),
        (StepPlan((entry(0, 8, 2),)), 0.0),
        (StepPlan((entry(4, 1, 2),)), 3 / 8),
        (StepPlan((entry(0, 4, 1), entry(3, 1, 3))), 0.5),
    ],
)
def test_waste_is_the_share_of_empty_slots(plan: StepPlan, expected: float) -> None:
    assert waste_ratio(plan, block_size=4) == pytest.approx(expected)


def test_metered_runner_changes_nothing_and_counts() -> None:
    settings = SimulatedSettings(num_blocks=4, block_size=4)
    registry = CollectorRegistry()
    metered = MeteredRunner(SimulatedRunner(settings), WorkerMetrics(registry))
    draw = Draw(0, GREEDY, 5, list(range(5)), [])
    plan = StepPlan((entry(0, 5, 2, (draw,)),))
    assert metered.execute(plan) == SimulatedRunner(settings).execute(plan)
    assert registry.get_sample_value("kvarn_batch_tokens_sum") == 5
    assert registry.get_sample_value("kvarn_step_seconds_count") == 1
    assert registry.get_sample_value("kvarn_kv_waste_ratio") == pytest.approx(3 / 8)


async def test_gate_counts_and_frees_its_places() -> None:
    gate = RequestGate()
    with contextlib.suppress(KeyError), gate.admit():
        assert gate.in_flight == 1
        assert not await gate.wait_idle(0.0)
        raise KeyError
    assert gate.in_flight == 0
    assert await gate.wait_idle(0.0)


async def test_closed_gate_refuses_and_lets_those_inside_finish() -> None:
    gate = RequestGate()
    with gate.admit():
        gate.close()
        await asyncio.wait_for(gate.closed(), 1)
        with pytest.raises(Draining), gate.admit():
            pass
        assert gate.in_flight == 1
    assert await gate.wait_idle(0.0)


def message(outputs: list[list[int]], peers: int) -> decode_pb2.GenerateRequest:
    return decode_pb2.GenerateRequest(
        request_id="r",
        prompt_tokens=[1, 2, 3],
        sampling=sampling_to_proto(GREEDY),
        choices=[common_pb2.Choice(index=index, output_tokens=out) for index, out in enumerate(outputs)],
        prefill_peers=[decode_pb2.Peer(worker_id=f"p{n}", address=f"host:{n}") for n in range(peers)],
        root_hash=bytes(16),
    )


@pytest.mark.parametrize(
    ("outputs", "peers", "expected"),
    [
        ([[]], 1, True),
        ([[]], 0, False),
        ([[4, 5]], 1, True),
        ([[], []], 1, True),
        ([[], [4]], 1, False),
    ],
)
def test_peers_serve_one_prefill_for_each_request(outputs: list[list[int]], peers: int, expected: bool) -> None:
    assert read_request(message(outputs, peers)).can_use_peers is expected


def test_resumed_output_is_prefilled_with_the_prompt() -> None:
    request = read_request(message([[4, 5]], 2))
    assert request.prefill_tokens == (1, 2, 3, 4, 5)
    assert request.peers == (Peer(WorkerId("p0"), "host:0"), Peer(WorkerId("p1"), "host:1"))


def channel_to(channels: PeerChannels, address: str) -> grpc.aio.Channel:
    with channels.use(address) as channel:
        return channel


async def test_channels_are_kept_and_bounded() -> None:
    channels = PeerChannels(ChannelSettings())
    oldest = channel_to(channels, "127.0.0.1:1")
    assert channel_to(channels, "127.0.0.1:1") is oldest
    for port in range(2, MAX_CHANNELS + 2):
        channel_to(channels, f"127.0.0.1:{port}")
    await channels.trim()
    assert channel_to(channels, "127.0.0.1:1") is not oldest
    await channels.close()


async def test_renewed_certificates_replace_a_channel_once_its_calls_have_ended(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "root")
    channels = PeerChannels(ChannelSettings(), TlsFiles(authority.issue(tmp_path / "worker")))
    with channels.use("127.0.0.1:1") as old:
        authority.issue(tmp_path / "worker")
        renewed = channel_to(channels, "127.0.0.1:1")
        assert renewed is not old
        assert channel_to(channels, "127.0.0.1:1") is renewed
        await channels.trim()
        assert old.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    await channels.trim()
    assert old.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert renewed.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    await channels.close()
