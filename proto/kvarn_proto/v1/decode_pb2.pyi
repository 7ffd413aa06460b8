from kvarn_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_ABORTED: _ClassVar[FinishReason]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_ABORTED: FinishReason

class Peer(_message.Message):
    __slots__ = ("worker_id", "incarnation", "address")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    address: str
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("request_id", "prompt_tokens", "sampling", "choices", "prefill_peers", "root_hash", "priority")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    PREFILL_PEERS_FIELD_NUMBER: _ClassVar[int]
    ROOT_HASH_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    prompt_tokens: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.Sampling
    choices: _containers.RepeatedCompositeFieldContainer[_common_pb2.Choice]
    prefill_peers: _containers.RepeatedCompositeFieldContainer[Peer]
    root_hash: bytes
    priority: int
    def __init__(self, request_id: _Optional[str] = ..., prompt_tokens: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.Sampling, _Mapping]] = ..., choices: _Optional[_Iterable[_Union[_common_pb2.Choice, _Mapping]]] = ..., prefill_peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., root_hash: _Optional[bytes] = ..., priority: _Optional[int] = ...) -> None: ...

class GenerateEvent(_message.Message):
    __slots__ = ("accepted", "tokens", "finished", "done")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    accepted: GenerateAccepted
    tokens: ChoiceTokens
    finished: ChoiceFinished
    done: GenerateDone
    def __init__(self, accepted: _Optional[_Union[GenerateAccepted, _Mapping]] = ..., tokens: _Optional[_Union[ChoiceTokens, _Mapping]] = ..., finished: _Optional[_Union[ChoiceFinished, _Mapping]] = ..., done: _Optional[_Union[GenerateDone, _Mapping]] = ...) -> None: ...

class GenerateAccepted(_message.Message):
    __slots__ = ("cached_tokens",)
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    cached_tokens: int
    def __init__(self, cached_tokens: _Optional[int] = ...) -> None: ...

class ChoiceTokens(_message.Message):
    __slots__ = ("choice", "tokens")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    choice: int
    tokens: _containers.RepeatedCompositeFieldContainer[_common_pb2.SampledToken]
    def __init__(self, choice: _Optional[int] = ..., tokens: _Optional[_Iterable[_Union[_common_pb2.SampledToken, _Mapping]]] = ...) -> None: ...

class ChoiceFinished(_message.Message):
    __slots__ = ("choice", "reason")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    choice: int
    reason: FinishReason
    def __init__(self, choice: _Optional[int] = ..., reason: _Optional[_Union[FinishReason, str]] = ...) -> None: ...

class GenerateDone(_message.Message):
    __slots__ = ("cached_tokens", "prefill_worker_id", "queue_s", "handoff_s", "exposed_handoff_s", "handoff_bytes", "preemptions")
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_S_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_HANDOFF_S_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    cached_tokens: int
    prefill_worker_id: str
    queue_s: float
    handoff_s: float
    exposed_handoff_s: float
    handoff_bytes: int
    preemptions: int
    def __init__(self, cached_tokens: _Optional[int] = ..., prefill_worker_id: _Optional[str] = ..., queue_s: _Optional[float] = ..., handoff_s: _Optional[float] = ..., exposed_handoff_s: _Optional[float] = ..., handoff_bytes: _Optional[int] = ..., preemptions: _Optional[int] = ...) -> None: ...

class StopChoiceRequest(_message.Message):
    __slots__ = ("request_id", "choice")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    choice: int
    def __init__(self, request_id: _Optional[str] = ..., choice: _Optional[int] = ...) -> None: ...

class StopChoiceResponse(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: bool
    def __init__(self, found: _Optional[bool] = ...) -> None: ...
