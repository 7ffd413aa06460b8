from kvarn_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PrefillRequest(_message.Message):
    __slots__ = ("request_id", "transfer_id", "generation", "tokens", "num_prompt_tokens", "sampling", "choices", "have_blocks", "layout_fingerprint", "root_hash", "priority")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    HAVE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ROOT_HASH_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    transfer_id: bytes
    generation: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    num_prompt_tokens: int
    sampling: _common_pb2.Sampling
    choices: _containers.RepeatedScalarFieldContainer[int]
    have_blocks: int
    layout_fingerprint: str
    root_hash: bytes
    priority: int
    def __init__(self, request_id: _Optional[str] = ..., transfer_id: _Optional[bytes] = ..., generation: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., num_prompt_tokens: _Optional[int] = ..., sampling: _Optional[_Union[_common_pb2.Sampling, _Mapping]] = ..., choices: _Optional[_Iterable[int]] = ..., have_blocks: _Optional[int] = ..., layout_fingerprint: _Optional[str] = ..., root_hash: _Optional[bytes] = ..., priority: _Optional[int] = ...) -> None: ...

class PrefillEvent(_message.Message):
    __slots__ = ("accepted", "first_tokens", "done")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    accepted: PrefillAccepted
    first_tokens: FirstTokens
    done: PrefillDone
    def __init__(self, accepted: _Optional[_Union[PrefillAccepted, _Mapping]] = ..., first_tokens: _Optional[_Union[FirstTokens, _Mapping]] = ..., done: _Optional[_Union[PrefillDone, _Mapping]] = ...) -> None: ...

class PrefillAccepted(_message.Message):
    __slots__ = ("cached_tokens",)
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    cached_tokens: int
    def __init__(self, cached_tokens: _Optional[int] = ...) -> None: ...

class FirstTokens(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[FirstToken]
    def __init__(self, tokens: _Optional[_Iterable[_Union[FirstToken, _Mapping]]] = ...) -> None: ...

class FirstToken(_message.Message):
    __slots__ = ("choice", "token")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    choice: int
    token: _common_pb2.SampledToken
    def __init__(self, choice: _Optional[int] = ..., token: _Optional[_Union[_common_pb2.SampledToken, _Mapping]] = ...) -> None: ...

class PrefillDone(_message.Message):
    __slots__ = ("num_blocks", "compute_s")
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    num_blocks: int
    compute_s: float
    def __init__(self, num_blocks: _Optional[int] = ..., compute_s: _Optional[float] = ...) -> None: ...
