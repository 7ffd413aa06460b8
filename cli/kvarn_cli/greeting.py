"""What `kvarn up` says when it serves: the address, a command to try, and one real answer."""

import json
from dataclasses import dataclass

import httpx
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from kvarn_cli.answer import AnswerError, Message, stream_answer

QUESTION = "Explain in two sentences why the sky is blue."
ANSWER_TOKENS = 96


@dataclass(frozen=True, slots=True)
class Served:
    model: str
    needs_key: bool


async def ask_served(base_url: str, model: str) -> Served:
    """By which name the router serves the model; `model` itself where only those with a key are told."""
    async with httpx.AsyncClient(base_url=base_url, timeout=10.0) as client:
        answer = await client.get("/v1/models")
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        return Served(model, needs_key=True)
    return Served(str(answer.raise_for_status().json()["data"][0]["id"]), needs_key=False)


def show_banner(console: Console, base_url: str, served: Served) -> None:
    messages = [{"role": "user", "content": "Say hello."}]
    body = json.dumps({"model": served.model, "stream": True, "messages": messages})
    key, chat_key = (" -H 'Authorization: Bearer YOUR_KEY'", " --api-key YOUR_KEY") if served.needs_key else ("", "")
    command = f"curl {base_url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'"
    console.print(Panel(Text(f"Kvarn serves {served.model} at {base_url}/v1"), expand=False, border_style="green"))
    console.print(Text(command), soft_wrap=True, highlight=False)
    console.print(Text(f"kvarn chat --url {base_url}{chat_key}\n"), soft_wrap=True, highlight=False)


async def show_sample(console: Console, base_url: str, model: str) -> None:
    """One streamed answer through both pools. A failure is shown, and the stack serves on."""
    console.print(Text(f"> {QUESTION}", style="bold"))
    async with httpx.AsyncClient(base_url=base_url, timeout=120.0) as client:
        try:
            answer = await stream_answer(
                client,
                model,
                [Message("user", QUESTION)],
                lambda text: console.print(Text(text), end="", soft_wrap=True, highlight=False),
                ANSWER_TOKENS,
                temperature=0.0,  # a small model's best answer, and the same at every start
            )
        except AnswerError as error:
            console.print(Text(f"no answer: {error}", style="red"))
            return
    console.print(Text(f"\n{answer.summary}", style="dim"))
