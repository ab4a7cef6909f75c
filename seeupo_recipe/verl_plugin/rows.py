"""Turn rows of an iteration: what each TransferQueue key stands for, in an order that never varies.

An agent loop's output number t of session g of prompt u has the key ``{u}_{g}_{t}``: one row per turn,
``{u}_{g}`` the trajectory, ``{u}`` the group. Keys hold random ids and arrive in completion order, so
rows are sorted by (task index, session, turn) before anything is computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size

from seeupo_recipe.agents.segments import turn_segments

# What a model reads of a row. Everything else (messages, facts, task columns) is made of Python objects, whose
# way through TransferQueue and the micro-batches costs more than a small model's arithmetic.
MODEL_COLUMNS = ("input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask")
WEIGHT_COLUMN = "seeupo_weight"
POLICY_LOSS_COLUMNS = ("old_log_probs", "ref_log_prob", "advantages", WEIGHT_COLUMN)
VALUE_LOSS_COLUMNS = ("values", "returns")


@dataclass(frozen=True)
class Row:
    """One turn of one trajectory.

    Attributes:
        key: TransferQueue key.
        trajectory: Trajectory id.
        group: Id of the trajectory's task (verl's uid).
        turn: 0-based turn.
        tokens: Length of prompt and response.
        sampled: Number of sampled tokens.
    """

    key: str
    trajectory: str
    group: str
    turn: int
    tokens: int
    sampled: int


def split_key(key: str) -> tuple[str, int, int]:
    """``(uid, session, turn)`` of a TransferQueue key."""
    uid, session, turn = key.rsplit("_", 2)
    return uid, int(session), int(turn)


def read_rows(batch: KVBatchMeta) -> tuple[KVBatchMeta, list[Row]]:
    """Split whole-trajectory outputs into turns, sort, and describe the rows.

    Returns:
        The batch with keys and tags in canonical order, and its rows in that order.
    """
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["index", "response_mask"])
    index = dict(zip(batch.keys, to_list(data["index"]), strict=True))
    masks = dict(zip(batch.keys, data["response_mask"].unbind(), strict=True))
    batch = _split_outputs(batch, masks, index)
    order = sorted(range(len(batch)), key=lambda i: (int(index[batch.keys[i]]), *split_key(batch.keys[i])))
    batch.reorder(order)
    rows = []
    for key, tag in zip(batch.keys, batch.tags, strict=True):
        uid, session, turn = split_key(key)
        rows.append(Row(key, f"{uid}_{session}", uid, turn, int(tag["seq_len"]), int(masks[key].sum())))
    return batch, rows


def pad_to_multiple(batch: KVBatchMeta, multiple: int, eos_token_id: int) -> KVBatchMeta:
    """Append verl's padding rows (no sampled token, so no gradient, no KL) up to ``multiple``."""
    return upsample_batch_to_divisible_size(batch, multiple, eos_token_id)


def padding_only(batch: KVBatchMeta, size: int, eos_token_id: int) -> KVBatchMeta:
    """``size`` padding rows alone, shaped after the first row of ``batch``."""
    template = batch.select_keys(batch.keys[:1])
    padded = pad_to_multiple(template, size + 1, eos_token_id)
    return padded.select_keys(padded.keys[1:])


def narrowed(batch: KVBatchMeta, columns: Iterable[str]) -> KVBatchMeta:
    """``batch`` as a request for those of ``columns`` that its rows have."""
    request = batch.select_keys(batch.keys)
    request.fields = list(columns)
    return request


def join(batches: Iterable[KVBatchMeta], like: KVBatchMeta) -> KVBatchMeta:
    """All rows of ``batches`` in one batch with the partition and extra info of ``like``."""
    batches = list(batches)
    return KVBatchMeta(
        keys=[key for b in batches for key in b.keys],
        tags=[tag for b in batches for tag in b.tags],
        partition_id=like.partition_id,
        extra_info=like.extra_info,
    )


def nested(rows: list[torch.Tensor]) -> torch.Tensor:
    """A jagged tensor from 1-d tensors of different lengths."""
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def to_list(column: object) -> list:
    """A column that is no tensor, as a list: its type depends on how TransferQueue stored it."""
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _split_outputs(batch: KVBatchMeta, masks: dict[str, torch.Tensor], index: dict[str, object]) -> KVBatchMeta:
    """Replace every row that holds several turns by one row per turn, in TransferQueue too.

    ``masks`` and ``index`` get the entries of the new keys.
    """
    whole = [key for key in batch.keys if len(turn_segments(masks[key].tolist())) > 1]
    if not whole:
        return batch
    tags = dict(zip(batch.keys, batch.tags, strict=True))
    data = tq.kv_batch_get(keys=whole, partition_id=batch.partition_id)
    new_keys, new_rows, new_tags = [], [], []
    for key, row in zip(whole, data, strict=True):
        uid, session, first = split_key(key)
        if first or f"{uid}_{session}_1" in tags:
            raise ValueError(f"{key}: a trajectory is either one output of all turns or one output per turn")
        for turn, segment in enumerate(turn_segments(masks[key].tolist())):
            new_key = f"{uid}_{session}_{turn}"
            fields = _segment_fields(row, segment.start, segment.stop)
            masks[new_key], index[new_key] = fields["response_mask"], index[key]
            length = fields["input_ids"].numel()
            new_keys.append(new_key)
            new_rows.append(fields)
            new_tags.append(
                {
                    **tags[key],
                    "seq_len": length,
                    "prompt_len": fields["prompts"].numel(),
                    "response_len": segment.stop - segment.start,
                }
            )
    tq.kv_clear(keys=whole, partition_id=batch.partition_id)
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    tq.kv_batch_put(
        keys=new_keys, partition_id=batch.partition_id, fields=list_of_dict_to_tensordict(new_rows), tags=new_tags
    )
    gone = set(whole)
    kept = [key for key in batch.keys if key not in gone]
    return KVBatchMeta(
        keys=kept + new_keys,
        tags=[tags[key] for key in kept] + new_tags,
        partition_id=batch.partition_id,
        extra_info=batch.extra_info,
    )


_PER_RESPONSE_TOKEN = ("response_mask", "loss_mask", "rollout_log_probs")


def _segment_fields(row: TensorDict, start: int, stop: int) -> dict[str, object]:
    """The columns of one turn: its prompt is everything before it, its response the turn alone."""
    fields = dict(row.items())
    prompts, responses = fields["prompts"], fields["responses"]
    fields["prompts"] = torch.cat([prompts, responses[:start]])
    fields["responses"] = responses[start:stop]
    fields["input_ids"] = torch.cat([fields["prompts"], fields["responses"]])
    fields["position_ids"] = fields["position_ids"][..., : fields["input_ids"].numel()]
    for name in _PER_RESPONSE_TOKEN:
        if name in fields:
            fields[name] = fields[name][start:stop]
    if "rm_scores" in fields:
        scores = torch.zeros(stop - start, dtype=fields["rm_scores"].dtype)
        scores[-1] = fields["rm_scores"].sum()
        fields["rm_scores"] = scores
    return fields
