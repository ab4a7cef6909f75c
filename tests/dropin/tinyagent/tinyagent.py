"""Somebody else's project: an agent loop with a small tool, trained with stock verl.

The agent is asked for the sum of two digits. A message with digits calls a calculator that adds them up; one
without ends the conversation. Every trajectory is one output, as verl's own ToolAgentLoop returns it: sampled
tokens have mask 1,
the calculator's tokens mask 0.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

MAX_CALLS = 2
DIGITS = "0123456789"


def calculator(text: str) -> str:
    """The tool: the sum of the digits in ``text``."""
    return str(sum(int(c) for c in text if c in DIGITS))


class CalculatorLoop(AgentLoopBase):
    """Up to ``MAX_CALLS`` calculator calls, then one answer."""

    async def run(self, sampling_params, **kwargs):
        prompt_ids = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
        context, mask, log_probs = list(prompt_ids), [], []
        first = last = None
        for call in range(MAX_CALLS + 1):
            output = await self.server_manager.generate(
                request_id=str(kwargs["uid"]), prompt_ids=context, sampling_params={**sampling_params, "max_tokens": 4}
            )
            step = output.extra_fields.get("global_steps")
            first, last = (step if first is None else first), step
            context += output.token_ids
            mask += [1] * len(output.token_ids)
            log_probs += output.log_probs
            text = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
            if not set(text) & set(DIGITS) or call == MAX_CALLS:
                break
            reply = self.tokenizer(calculator(text) + "\n", add_special_tokens=False)["input_ids"]
            context += reply
            mask += [0] * len(reply)
            log_probs += [0.0] * len(reply)
        reward = float("=" in text)
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=context[len(prompt_ids) :],
            response_mask=mask,
            response_logprobs=log_probs,
            reward_score=reward,
            num_turns=sum(mask[i] and not (i and mask[i - 1]) for i in range(len(mask))),
            metrics=AgentLoopMetrics(),
            extra_fields={"min_global_steps": first, "max_global_steps": last, "reward_extra_info": {"acc": reward}},
        )


def write_data(folder: Path) -> None:
    """Training and validation prompts as verl's parquet files."""
    rows = [
        {
            "data_source": "sums",
            "prompt": [{"role": "user", "content": f"{a}+{b}"}],
            "reward_model": {"style": "rule", "ground_truth": str(a + b)},
            "extra_info": {"index": 10 * a + b},
        }
        for a in range(10)
        for b in range(10)
    ]
    pd.DataFrame(rows[:64]).to_parquet(folder / "train.parquet")
    pd.DataFrame(rows[64:80]).to_parquet(folder / "val.parquet")
