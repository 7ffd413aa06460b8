import json
from collections.abc import Sequence

import pytest
from kvarn_bench.measure import Figure, Grid, compare
from kvarn_bench.vllm_column import PeerFailed, read_answer
from kvarn_bench.vllm_peer import ANSWER

GRID = Grid(prefill_tokens=(10, 20), batches=(2,), context=5, steps=3, rounds=2)


class ScriptedContender:
    def __init__(self, name: str, times: Sequence[float], calls: list[tuple[str, int]]) -> None:
        self.name = name
        self._times = list(times)
        self._calls = calls

    def prefill(self, tokens: Sequence[int]) -> float:
        self._calls.append((self.name, len(tokens)))
        return self._times.pop(0)

    def decode_step(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        assert [len(prompt) for prompt in prompts] == [5, 5]
        assert steps == 3
        return self._times.pop(0)


def test_rounds_alternate_and_the_first_only_warms_up() -> None:
    calls: list[tuple[str, int]] = []
    ours = ScriptedContender("kvarn", [9.0, 1.0, 3.0, 9.0, 4.0, 4.0, 9.0, 0.5, 0.5], calls)
    peer = ScriptedContender("transformers", [9.0, 4.0, 4.0, 9.0, 8.0, 8.0, 9.0, 1.0, 1.0], calls)
    measured = compare([ours, peer], GRID, lambda count: [0] * count)
    assert calls[:4] == [("kvarn", 10), ("transformers", 10)] * 2
    assert measured.prefill[:2] == (Figure("kvarn", 10, 2.0, 5.0), Figure("transformers", 10, 4.0, 2.5))
    assert measured.decode == (Figure("kvarn", 2, 0.5, 4.0), Figure("transformers", 2, 1.0, 2.0))


def test_reads_the_answer_of_another_python_among_its_logs() -> None:
    answer = json.dumps({"version": "1.2", "prefill_s": {"10": 2.0}, "decode_s": {"4": 0.5}})
    peer = read_answer(f"a log line\n{ANSWER}{answer}\nanother process shut down\n")
    assert peer.version == "1.2"
    assert peer.figures.prefill == (Figure("vllm", 10, 2.0, 5.0),)
    assert peer.figures.decode == (Figure("vllm", 4, 0.5, 8.0),)


@pytest.mark.parametrize(
    "output", ["", "a log line", '{"version": "1"}', f"{ANSWER}not JSON", f"{ANSWER}[]", f'{ANSWER}{{"version": "1"}}']
)
def test_an_answer_without_figures_is_refused(output: str) -> None:
    with pytest.raises(PeerFailed, match="no figures"):
        read_answer(output)
