"""The benchmarks end to end, small: `serve` against a scripted server on real uvicorn, `handoff` over loopback."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from kvarn_bench.__main__ import main
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.polling import until
from tests.support.tiny import write_tiny_model

TOKENS = 8


async def _models(request: Request) -> Response:
    return JSONResponse({"data": [{"id": "scripted"}]})


async def _complete(request: Request) -> Response:
    body = await request.json()
    assert body["model"] == "scripted"
    assert body["max_tokens"] == TOKENS
    request.app.state.seen += 1
    if request.app.state.seen in request.app.state.refuse:
        return JSONResponse({"error": {"message": "overloaded"}}, status_code=503)
    return StreamingResponse(_events(request.app.state.seen in request.app.state.cut), media_type="text/event-stream")


async def _events(cut: bool) -> AsyncIterator[str]:
    yield ": ping\n\n"
    for number in range(TOKENS):
        yield f"data: {json.dumps({'choices': [{'text': f' {number}'}]})}\n\n"
    if cut:
        yield 'data: {"error": {"message": "worker lost"}}\n\n'
        return
    usage = {"prompt_tokens": 100, "completion_tokens": TOKENS, "prompt_tokens_details": {"cached_tokens": 50}}
    yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


@asynccontextmanager
async def scripted_server(refuse: frozenset[int], cut: frozenset[int]) -> AsyncIterator[str]:
    """Requests are numbered from 1 as they come in."""
    app = Starlette(routes=[Route("/v1/models", _models), Route("/v1/completions", _complete, methods=["POST"])])
    app.state.seen, app.state.refuse, app.state.cut = 0, refuse, cut
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    serving = asyncio.create_task(server.serve(), name="scripted-server")
    await until(lambda: server.started, "the scripted server accepts connections")
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


async def test_serve_measures_and_counts_errors(tmp_path: Path) -> None:
    target = tmp_path / "serve.json"
    async with scripted_server(refuse=frozenset({2}), cut=frozenset({4})) as url:
        argv = ["serve", "--smoke", "--url", url, "--json", str(target), "--slo-ttft-ms", "60000"]
        status = await asyncio.to_thread(main, [*argv, "--slo-itl-ms", "60000"])
    assert status == 0
    summary = json.loads(target.read_text(encoding="utf-8"))["results"]["summary"]
    assert (summary["requests"], summary["completed"], summary["good"]) == (6, 4, 4)
    assert summary["errors"] == {"HTTP 503": 1, "error event": 1}
    assert summary["cached_token_share"] == pytest.approx(0.5)
    assert summary["ttft_s"]["count"] == 4
    assert summary["itl_s"]["count"] == 4 * (TOKENS - 1)


async def test_serve_fails_when_nothing_completes(tmp_path: Path) -> None:
    target = tmp_path / "serve.json"
    async with scripted_server(refuse=frozenset(range(100)), cut=frozenset()) as url:
        status = await asyncio.to_thread(main, ["serve", "--smoke", "--url", url, "--json", str(target)])
    assert status == 1
    assert json.loads(target.read_text(encoding="utf-8"))["results"]["summary"]["errors"] == {"HTTP 503": 6}


def test_handoff_smoke_over_simulated_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "handoff.json"
    assert main(["handoff", "--smoke", "--json", str(target)]) == 0
    assert "hand-off frames" in capsys.readouterr().out
    results = json.loads(target.read_text(encoding="utf-8"))["results"]
    assert [stream["stream"] for stream in results["streams"]] == [
        "raw TCP socket", "gRPC, bytes only", "gRPC, hand-off frames"
    ]  # fmt: skip
    assert all(stream["gigabytes_per_s"] > 0 for stream in results["streams"])
    assert [figure["prompt_tokens"] for figure in results["exposure"]] == [64, 256]
    assert all(0 <= figure["exposed_s"] <= figure["handoff_s"] for figure in results["exposure"])
    assert all(figure["handoff_bytes"] > 0 for figure in results["exposure"])


def test_engine_smoke_on_a_tiny_model(tmp_path: Path) -> None:
    """In a process of its own: the benchmark sets the thread count of the whole process."""
    model, target = write_tiny_model(tmp_path / "model"), tmp_path / "engine.json"
    argv = ["engine", "--smoke", "--model", str(model), "--kv-memory-gib", "0.05", "--json", str(target)]
    argv += ["--vllm-python", sys.executable]  # where vllm is missing: said, and the other figures stay
    done = subprocess.run([sys.executable, "-m", "kvarn_bench", *argv], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "vLLM could not be measured" in done.stderr
    assert "No module named 'vllm'" in done.stderr
    figures = json.loads(target.read_text(encoding="utf-8"))["results"]["figures"]
    for kind in ("prefill", "decode"):
        by_contender = {figure["contender"]: figure["seconds"] for figure in figures[kind]}
        assert len(by_contender) == 2
        assert all(seconds > 0 for seconds in by_contender.values())


def test_scaling_smoke_is_complete_and_repeatable(tmp_path: Path) -> None:
    targets = (tmp_path / "one.json", tmp_path / "two.json")
    figures = []
    for target in targets:
        assert main(["scaling", "--smoke", "--maximum", "4", "--json", str(target)]) == 0
        figures.append(json.loads(target.read_text(encoding="utf-8"))["results"]["figures"])
    assert figures[0] == figures[1]
    by_trace: dict[str, dict[str, float]] = {}
    for figure in figures[0]:
        assert 0.0 <= figure["both_attained"] <= min(figure["ttft_attained"], figure["itl_attained"])
        by_trace.setdefault(figure["trace"], {})[figure["controller"]] = figure["gpu_hours"]
    assert list(by_trace) == ["bursty", "diurnal", "P/D shift"]
    for hours in by_trace.values():
        assert {"Kvarn", "HPA", "Dynamo throughput", "llm-d token-aware", "AIBrix APA"} < set(hours)
        assert max(hours, key=lambda name: hours[name]) == "fixed at maximum"


def test_load_generators_never_load_torch() -> None:
    loaded = "import sys, kvarn_bench.serve, kvarn_bench.handoff, kvarn_bench.scaling"
    program = f"{loaded}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_unknown_command_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "handoff" in capsys.readouterr().out
