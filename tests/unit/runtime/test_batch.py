"""A plan becomes one packed row: positions, places in the store, and the rows whose logits are wanted."""

import pytest
import torch
from kvarn_engine.core.ids import BlockIndex
from kvarn_engine.core.plan import Draw, PlanEntry, StepPlan
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.runtime.batch import pack

CPU = torch.device("cpu")
DRAW = Draw(0, SamplingParams(max_tokens=1), 0, (), ())


def blocks(*indexes: int) -> list[BlockIndex]:
    return [BlockIndex(index) for index in indexes]


def test_chunks_and_decodes_share_a_row() -> None:
    plan = StepPlan(
        (
            PlanEntry([10, 11, 12], 2, blocks(7, 3, 9)),
            PlanEntry([20], 8, blocks(1, 2, 5), (DRAW,)),
            PlanEntry([30, 31], 0, blocks(4), (DRAW, DRAW)),
        )
    )
    batch = pack(plan, 4, CPU)
    assert batch.tokens.tolist() == [[10, 11, 12, 20, 30, 31]]
    assert batch.positions.tolist() == [[2, 3, 4, 8, 0, 1]]
    assert batch.blocks.tolist() == [7, 7, 3, 5, 4, 4]
    assert batch.slots.tolist() == [2, 3, 0, 0, 0, 1]
    assert batch.logit_rows.tolist() == [3, 5]
    assert [(span.row, span.length, span.context) for span in batch.chunks] == [(0, 3, 5), (4, 2, 2)]
    assert batch.chunks[0].block_table.tolist() == [7, 3]
    assert batch.decodes is not None
    assert batch.decodes.rows.tolist() == [3]
    assert batch.decodes.contexts.tolist() == [9]
    assert batch.decodes.block_tables.tolist() == [[1, 2, 5]]


def test_a_short_block_table_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="covers"):
        pack(StepPlan((PlanEntry([1, 2], 3, blocks(0)),)), 4, CPU)
