"""Tokenizer, chat template and detokenizer against transformers, on a tokenizer made on the spot."""

import json
from datetime import datetime

import pytest
from kvarn_router.chat_template import Chat, ChatMessage, ChatTemplate
from kvarn_router.detokenization import Detokenizer
from kvarn_router.errors import InvalidInput
from kvarn_router.tokenization import Tokenizer

from tests.support.scripted_api import write_tiny_tokenizer

TEXTS = [
    "hello world",
    "  two  spaces\n\n",
    "naïve café",
    "日本語のテキスト",
    "👩‍👩‍👧 family 🏳️‍🌈",
    "<|im_end|> inside",
    "\ufffd kept",
]
FULL_TEMPLATE = (
    "{{ bos_token }}{%- for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{% generation %}{{ m['content'] }}{% endgeneration %}<|im_end|>\n{% endfor %}"
    "{{ {'b': 1, 'a': '<é>'} | tojson }}{% if thinking is defined %}[{{ thinking }}]{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = (ChatMessage("system", " be brief "), ChatMessage("user", "hi 👋"), ChatMessage("assistant", "sure, "))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def tokenizer(folder):
    loaded = Tokenizer.load(folder)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def reference(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def chat_dicts(messages):
    return [{"role": message.role, "content": message.content} for message in messages]


@pytest.mark.parametrize("text", TEXTS)
async def test_encode_and_decode_like_transformers(tokenizer, reference, text):
    for special in (True, False):
        ours = list(await tokenizer.encode(text, special))
        assert ours == reference.encode(text, add_special_tokens=special)
        assert tokenizer.decode(ours) == reference.decode(ours)
        skipped = await tokenizer.decode_in_pool(ours, True)
        assert skipped == reference.decode(ours, skip_special_tokens=True)


@pytest.mark.parametrize("variant", ["prompt", "plain", "continue"])
@pytest.mark.parametrize("full", [False, True])
async def test_render_like_transformers(tmp_path, variant, full):
    from transformers import AutoTokenizer

    folder = write_tiny_tokenizer(tmp_path, FULL_TEMPLATE) if full else write_tiny_tokenizer(tmp_path)
    tokenizer, reference = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    kwargs = {"thinking": True} if full else {}
    chat = Chat(MESSAGES, variant == "prompt", variant == "continue", kwargs)
    expected = reference.apply_chat_template(
        chat_dicts(MESSAGES),
        tokenize=False,
        add_generation_prompt=chat.add_generation_prompt,
        continue_final_message=chat.continue_final_message,
        **kwargs,
    )
    assert tokenizer.render_text(chat) == expected
    assert list(await tokenizer.render(chat)) == reference.encode(expected, add_special_tokens=False)
    tokenizer.close()


def pieces(tokenizer, tokens, prompt=()):
    detokenizer = Detokenizer(tokenizer.decode, tokenizer.token_bytes, prompt)
    return [*(detokenizer.push(token) for token in tokens), detokenizer.flush()]


@pytest.mark.parametrize("text", TEXTS)
async def test_pieces_are_whole_characters(tokenizer, text):
    tokens = await tokenizer.encode(text, False)
    for prompt in ((), tokens):
        parts = pieces(tokenizer, tokens, prompt)
        assert "".join(parts) == text
        assert sum(part.count("\ufffd") for part in parts) == text.count("\ufffd")


async def test_a_character_cut_off_by_the_end_is_dropped(tokenizer):
    tokens = await tokenizer.encode("ok 🙂", False)
    assert "".join(pieces(tokenizer, tokens[:-1])) == "ok "


async def test_bytes_that_can_never_be_a_character_do_not_hold_text_back(tokenizer):
    lone = next(token for token in range(300) if tokenizer.token_bytes(token) == b"\x80")
    (letter,) = await tokenizer.encode("z", False)
    assert pieces(tokenizer, [lone, letter]) == ["\ufffd", "z", ""]


async def test_token_text_shows_partial_bytes_escaped(tokenizer):
    tokens = await tokenizer.encode("🙂", False)
    assert b"".join(tokenizer.token_bytes(token) for token in tokens) == "🙂".encode()
    assert tokenizer.token_text(tokens[0]) == "bytes:\\xf0"


def test_sentencepiece_spaces_and_byte_fallback():
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    vocabulary = {"<unk>": 0, "▁the": 1, "▁cat": 2, **{f"<0x{byte:02X}>": 3 + byte for byte in range(256)}}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(parts)
    tokenizer = Tokenizer(backend, None, frozenset(), 1)
    emoji = [3 + byte for byte in "🙂".encode()]
    assert pieces(tokenizer, [2, *emoji, 1], prompt=[1]) == [" cat", "", "", "", "🙂", " the", ""]
    assert tokenizer.token_bytes(2) == b" cat"
    tokenizer.close()


def test_end_of_sequence_ids_prefer_the_generation_settings(tmp_path):
    folder = write_tiny_tokenizer(tmp_path)
    assert Tokenizer.load(folder).eos_ids == {2}
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 1}))
    assert Tokenizer.load(folder).eos_ids == {1}
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    assert Tokenizer.load(folder).eos_ids == {0, 2}


def test_template_file_and_named_templates(tmp_path):
    folder = write_tiny_tokenizer(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(folder).render_text(Chat(MESSAGES)) == "D"
    (folder / "chat_template.jinja").write_text("F")
    assert Tokenizer.load(folder).render_text(Chat(MESSAGES)) == "F"


def template(source):
    return ChatTemplate(source, {}, lambda: datetime(2026, 1, 2))


def test_clock_is_the_given_one():
    assert template("{{ strftime_now('%Y-%m-%d') }}").render(Chat(MESSAGES)) == "2026-01-02"


@pytest.mark.parametrize(
    ("source", "kwargs", "continued", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", {}, False, "roles must alternate"),
        ("{{ messages.append(1) }}", {}, False, "refused"),
        ("{{ x + 1 }}", {"x": "a"}, False, "cannot render"),
        ("{{ ''.__class__.__mro__ }}", {}, False, "refused"),
        ("x", {"messages": []}, False, "'messages' cannot be set"),
        ("no content", {}, True, "cannot be continued"),
    ],
)
def test_a_template_that_refuses_is_the_clients_error(source, kwargs, continued, message):
    with pytest.raises(InvalidInput, match=message):
        template(source).render(Chat(MESSAGES, not continued, continued, kwargs))


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)
