"""Rows of an iteration, read from TransferQueue in whatever order the episodes ended."""

import pytest
import torch
import transfer_queue as tq
import verl.trainer.ppo.v1.trainer_sync  # noqa: F401  (loads the plugin's trainers)
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from seeupo_recipe.verl_plugin.rows import read_rows

# Task index -> (random) uid; the canonical order is by task, session and turn, which neither uids nor text follow.
UIDS = {2: "zz", 10: "aa", 11: "mm_1"}
CANONICAL = [
    (index, session, turn) for index in sorted(UIDS) for session in (0, 2, 10) for turn in range(1 + session % 3)
]


def read(rows):
    keys = [f"{UIDS[index]}_{session}_{turn}" for index, session, turn in rows]
    lengths = [5 + turn for _, _, turn in rows]
    masks = [torch.ones(1 + turn, dtype=torch.long) for _, _, turn in rows]
    columns = TensorDict(
        {
            "index": torch.tensor([index for index, _, _ in rows]),
            "response_mask": torch.nested.as_nested_tensor(masks, layout=torch.jagged),
        },
        batch_size=len(rows),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tq, "kv_batch_get", lambda **_: columns)
        batch = KVBatchMeta(keys=keys, tags=[{"seq_len": n} for n in lengths], partition_id="train")
        return read_rows(batch)


@given(st.permutations(CANONICAL))
def test_rows_are_in_canonical_order_whatever_the_order_of_completion(completed):
    batch, rows = read(completed)
    assert [row.key for row in rows] == batch.keys
    assert batch.keys == [f"{UIDS[index]}_{session}_{turn}" for index, session, turn in CANONICAL]
    for (index, session, turn), row, tag in zip(CANONICAL, rows, batch.tags, strict=True):
        assert (row.group, row.trajectory, row.turn) == (UIDS[index], f"{UIDS[index]}_{session}", turn)
        assert (row.tokens, row.sampled) == (5 + turn, 1 + turn) and tag["seq_len"] == 5 + turn
