"""What `kvarn up` says when it serves: the address, a command to try, and one real answer."""

import json

import httpx
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from kvarn_cli.answer import AnswerError, Message, stream_answer

QUESTION = "Explain in two sentences why the sky is blue."
ANSWER_TOKENS = 96


def show_banner(console: Console, base_url: str, model: str) -> None:
    body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": "Say hello."}]})
    command = f"curl {base_url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'"
    console.print(Panel(Text(f"Kvarn serves {model} at {base_url}/v1"), expand=False, border_style="green"))
    console.print(Text(command), soft_wrap=True, highlight=False)
    console.print(Text(f"kvarn chat --url {base_url}\n"), soft_wrap=True, highlight=False)


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
