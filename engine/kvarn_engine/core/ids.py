"""Names for ids that could be mixed up. Every part of Kvarn uses these; nothing here has behaviour."""

from typing import NewType

RequestId = NewType("RequestId", str)
"""One client request, the same on every hop (`X-Request-Id`)."""

WorkerId = NewType("WorkerId", str)
"""A worker's stable name, chosen by whoever starts it (pod name, `prefill-0`)."""

Incarnation = NewType("Incarnation", str)
"""One life of one worker process. Never reused, never derived from an address."""

BlockIndex = NewType("BlockIndex", int)
"""Position of a block in one worker's KV store, 0-based."""

BlockHash = NewType("BlockHash", bytes)
"""16-byte chained digest of a full block's tokens (proto/kvarn_proto/HASHING.md)."""

TransferId = NewType("TransferId", bytes)
"""16 bytes naming one hand-off."""

TokenId = int
"""A vocabulary index. A plain alias: lists of these are too long to wrap."""
