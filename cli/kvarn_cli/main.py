"""The `kvarn` command: reads the command line and hands over. Each subcommand lives in a file of its own name."""

from pathlib import Path
from typing import Annotated

import typer
from kvarn_engine.model_folder import EMBEDDED_MODEL
from rich.console import Console

from kvarn_cli.chat import ChatOptions, run_chat
from kvarn_cli.doctor import run_doctor
from kvarn_cli.k8s.command import build_k8s_app
from kvarn_cli.stack_plan import LOOPBACK, StackOptions
from kvarn_cli.up import UpOptions, run_up

DEFAULT_PORT = 8000
DEFAULT_URL = f"http://{LOOPBACK}:{DEFAULT_PORT}"

UrlOption = Annotated[str, typer.Option(help="Base address of the router, without /v1.")]
KeyOption = Annotated[str, typer.Option(help="API key, when the router asks for one.")]


def main() -> None:
    build_app()()


def build_app() -> typer.Typer:
    about = "Kvarn: disaggregated serving of language models."
    app = typer.Typer(no_args_is_help=True, add_completion=False, help=about)
    app.command()(up)
    app.command()(chat)
    app.command()(doctor)
    app.add_typer(build_k8s_app(), name="k8s")
    return app


def up(
    model: Annotated[str, typer.Option(help="Embedded model's name, a model folder, or a hub id.")] = EMBEDDED_MODEL,
    prefill: Annotated[int, typer.Option(min=0, help="Number of prefill workers.")] = 1,
    decode: Annotated[int, typer.Option(min=1, help="Number of decode workers.")] = 1,
    host: Annotated[str, typer.Option(help="Where the router listens. Workers stay on loopback.")] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The router's port; 0 picks a free one.")] = DEFAULT_PORT,
    threads: Annotated[int, typer.Option(min=0, help="Compute threads by worker; 0 shares the cores out.")] = 0,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32; empty leaves it to the worker.")] = "",
    engine: Annotated[str, typer.Option(help="torch, or simulated (no model is computed).")] = "torch",
    chat: Annotated[bool, typer.Option(help="Show one streamed answer when the stack serves.")] = True,
    worker_args: Annotated[str, typer.Option(help="More flags for every worker, in one string.")] = "",
    prefill_args: Annotated[str, typer.Option(help="More flags for prefill workers.")] = "",
    decode_args: Annotated[str, typer.Option(help="More flags for decode workers.")] = "",
    router_args: Annotated[str, typer.Option(help="More flags for the router.")] = "",
    ready_file: Annotated[Path | None, typer.Option(help="Write address and processes here as JSON.")] = None,
    grace_s: Annotated[float, typer.Option(min=0.0, help="Seconds to end in order before the rest is killed.")] = 10.0,
) -> None:
    """Run router, prefill and decode workers on this machine until Ctrl-C."""
    stack = StackOptions(
        model=model,
        prefill=prefill,
        decode=decode,
        host=host,
        port=port,
        threads=threads,
        dtype=dtype,
        engine=engine,
        worker_args=worker_args,
        prefill_args=prefill_args,
        decode_args=decode_args,
        router_args=router_args,
    )
    raise typer.Exit(run_up(UpOptions(stack, chat, ready_file, grace_s), Console()))


def chat(
    prompt: Annotated[str, typer.Argument(help="One question; without it a conversation starts.")] = "",
    url: UrlOption = DEFAULT_URL,
    model: Annotated[str, typer.Option(help="Empty: the first one listed.")] = "",
    api_key: KeyOption = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 512,
) -> None:
    """Ask the served model; shows TTFT, ITL and cached tokens for each answer."""
    raise typer.Exit(run_chat(ChatOptions(url, model, api_key, max_tokens), prompt, Console()))


def doctor(url: UrlOption = DEFAULT_URL, api_key: KeyOption = "") -> None:
    """Check registration, fingerprints and event flow, and say what to fix."""
    raise typer.Exit(run_doctor(url, api_key, Console()))
