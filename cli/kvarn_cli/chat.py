"""`kvarn chat`: one question, or a conversation in the terminal, with the speed of each answer."""

import asyncio
from dataclasses import dataclass

import httpx
from rich.console import Console
from rich.text import Text

from kvarn_cli.answer import Answer, AnswerError, Message, stream_answer
from kvarn_cli.router_view import RouterUnreachable, fetch_models


@dataclass(frozen=True, slots=True)
class ChatOptions:
    url: str
    model: str
    """Empty: the first model that the server lists."""

    api_key: str
    max_tokens: int


def run_chat(options: ChatOptions, prompt: str, console: Console) -> int:
    """With a prompt: answer it and return. Without: a conversation until end of input. The exit status."""
    headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    try:
        model = options.model or _first_model(options.url, headers)
        if prompt:
            asyncio.run(_answer(options, headers, model, [Message("user", prompt)], console))
        else:
            _converse(options, headers, model, console)
    except (AnswerError, RouterUnreachable) as error:
        console.print(Text(f"kvarn chat: {error}", style="bold red"), soft_wrap=True)
        return 1
    return 0


def _first_model(url: str, headers: dict[str, str]) -> str:
    with httpx.Client(base_url=url, headers=headers, timeout=10.0) as client:
        models = fetch_models(client)
    if not models:
        raise AnswerError(f"{url} serves no model; is a worker registered? `kvarn doctor --url {url}` tells")
    return models[0]


def _converse(options: ChatOptions, headers: dict[str, str], model: str, console: Console) -> None:
    console.print(Text(f"{model} at {options.url}; end with Ctrl-D, start over with /new", style="dim"))
    history: list[Message] = []
    while True:
        try:
            question = console.input("[bold]> [/bold]").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        if question == "/new":
            history = []
        elif question:
            asked = [*history, Message("user", question)]
            try:
                answer = asyncio.run(_answer(options, headers, model, asked, console))
            except KeyboardInterrupt:
                console.print(Text("\nstopped; the question is forgotten", style="dim"))
            except AnswerError as error:
                console.print(Text(f"no answer, and the question is forgotten: {error}", style="red"), soft_wrap=True)
            else:
                history = [*asked, Message("assistant", answer.text)]


async def _answer(
    options: ChatOptions, headers: dict[str, str], model: str, messages: list[Message], console: Console
) -> Answer:
    def show(text: str) -> None:
        console.print(Text(text), end="", soft_wrap=True, highlight=False)

    async with httpx.AsyncClient(base_url=options.url, headers=headers, timeout=300.0) as client:
        answer = await stream_answer(client, model, messages, show, options.max_tokens)
    console.print(Text(f"\n{answer.summary}", style="dim"))
    return answer
