"""`kvarn k8s ...` and, under its name as a kubectl plugin, `kubectl kvarn ...`: command lines to functions."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from kvarn_cli.k8s.cluster import Cluster, ClusterError
from kvarn_cli.k8s.drain import DrainOptions, run_drain
from kvarn_cli.k8s.explanation import show_explanation
from kvarn_cli.k8s.log_streams import LogOptions, show_logs
from kvarn_cli.k8s.status import show_status

NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Empty: the context's.")]
ContextOption = Annotated[str, typer.Option(help="Empty: the kubeconfig's current one.")]
NameArgument = Annotated[str, typer.Argument(help="A ModelService; empty: all of the namespace.")]

PIPE_WIDTH = 200
"""Of what goes to a file or program, which a terminal's 80 columns would cut."""


def main() -> None:
    build_k8s_app()()


def build_k8s_app() -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, add_completion=False, help="Look at and handle Kvarn on Kubernetes.")
    for command in (status, explain, drain, logs):
        app.command()(command)
    return app


def status(name: NameArgument = "", namespace: NamespaceOption = "", context: ContextOption = "") -> None:
    """Show pools, pods, load and latency against the objective. Status 1 when a model is not ready."""
    _run(context, namespace, lambda cluster, out: show_status(cluster, name, datetime.now(UTC), out))


def explain(
    name: NameArgument = "",
    limit: Annotated[int, typer.Option(min=1, help="Newest decisions of each pool and router.")] = 5,
    namespace: NamespaceOption = "",
    context: ContextOption = "",
) -> None:
    """Show the last scaling and routing decisions, with every term."""
    _run(context, namespace, lambda cluster, out: show_explanation(cluster, name, limit, out))


def drain(
    pod: Annotated[str, typer.Argument(help="A worker pod.")],
    undo: Annotated[bool, typer.Option("--undo", help="Give it work again.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until the pod is gone.")] = True,
    timeout_s: Annotated[float, typer.Option(min=1.0, help="How long to wait.")] = 600.0,
    namespace: NamespaceOption = "",
    context: ContextOption = "",
) -> None:
    """Take a worker pod out of service without losing a stream; the operator replaces it first."""
    options = DrainOptions(pod, undo, wait, timeout_s)
    _run(context, namespace, lambda cluster, out: run_drain(cluster, options, datetime.now(UTC), out))


def logs(
    name: NameArgument = "",
    role: Annotated[str, typer.Option(help="prefill, decode or router; empty: all.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    tail: Annotated[int, typer.Option(min=0, help="Last lines of each pod.")] = 50,
    namespace: NamespaceOption = "",
    context: ContextOption = "",
) -> None:
    """Show the logs of a model's workers and routers together."""
    if role not in ("", "prefill", "decode", "router"):
        raise typer.BadParameter(f"{role!r} is not prefill, decode or router", param_hint="--role")
    _run(context, namespace, lambda cluster, out: show_logs(cluster, LogOptions(name, role, follow, tail), out))


def _run(context: str, namespace: str, action: Callable[[Cluster, Console], int]) -> None:
    # Here, because its import takes longer than most commands of `kvarn`, which do not need it.
    from kvarn_cli.k8s.api_cluster import ApiCluster

    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    try:
        code = action(ApiCluster(context, namespace), console)
    except ClusterError as error:
        Console(stderr=True).print(str(error), style="red", soft_wrap=True)
        code = 2
    raise typer.Exit(code)
