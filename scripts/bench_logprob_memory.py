"""Peak memory of verl's log-prob pass over a large vocabulary, all logits at once against chunks.

    python scripts/bench_logprob_memory.py [--tokens 2048 3072 4096 16384] [--limit-gib 6]

Each case runs in a process of its own and calls the functions that verl's FSDP engine calls between the last hidden
states and the log-probabilities: in the pass over old log-probabilities, which takes the entropy too and no gradient,
and in the update, forward and backward. ``logits`` is verl's default, ``fused`` is ``model.use_fused_kernels``, and
``chunked_entropy`` is ``entropy_from_logits_with_chunking`` alone. The peak is that of the resident set above its size
before the pass. Cases above the limit are not run; their values continue the line through the measured ones.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "results" / "paper_scale"
VOCABULARY, HIDDEN, CHUNK, TEMPERATURE = 151_936, 64, 512, 0.9
FORMS = ("logits", "chunked_entropy", "fused")
PASSES = ("old_log_probs", "update")
MIB = 2**20


def run_pass(form: str, kind: str, tokens: int) -> dict[str, float]:
    """Peak in MiB above the memory before the pass, and its seconds; in this process."""
    import torch
    from verl.utils import torch_functional as F
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    torch.manual_seed(0)
    grad = kind == "update"
    hidden = torch.randn(1, tokens, HIDDEN, dtype=torch.bfloat16).requires_grad_(grad)
    head = (torch.randn(VOCABULARY, HIDDEN, dtype=torch.bfloat16) / HIDDEN**0.5).requires_grad_(grad)
    labels = torch.randint(VOCABULARY, (1, tokens))
    before, started = resident_peak(), time.perf_counter()
    with torch.set_grad_enabled(grad):
        if form == "fused":
            log_probs, entropy = FusedLinearForPPO(chunk_size=CHUNK)(hidden, head, labels, TEMPERATURE)
        else:
            logits = (hidden @ head.T).squeeze(0) / torch.full((tokens, 1), TEMPERATURE).to(hidden.dtype)
            if kind == "old_log_probs":
                entropy = (F.entropy_from_logits if form == "logits" else F.entropy_from_logits_with_chunking)(logits)
            log_probs = F.logprobs_from_logits(logits, labels.squeeze(0), inplace_backward=grad)
        if grad:
            log_probs.float().sum().backward()
    assert torch.isfinite(log_probs).all() and (grad or torch.isfinite(entropy).all())
    return {"peak_mib": resident_peak() - before, "seconds": time.perf_counter() - started}


def resident_peak() -> float:
    """Largest resident set so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def measure(form: str, kind: str, tokens: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--case", form, kind, str(tokens)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(result.stderr)
    return json.loads(result.stdout.splitlines()[-1])


def series(form: str, kind: str, sizes: list[int], limit_mib: float) -> list[dict]:
    """Measured rows up to the limit, then rows on the line through the last two measured."""
    rows: list[dict] = []
    for tokens in sorted(sizes):
        expected = line(rows, tokens) if len(rows) > 1 else 0.0
        row = {"form": form, "pass": kind, "tokens": tokens, "measured": expected <= limit_mib}
        values = measure(form, kind, tokens) if row["measured"] else {"peak_mib": expected, "seconds": None}
        rows.append({**row, **{key: value and round(value, 1) for key, value in values.items()}})
        print(rows[-1], flush=True)
    return rows


def line(rows: list[dict], tokens: int) -> float:
    measured = [row for row in rows if row["measured"]][-2:]
    (x0, y0), (x1, y1) = ((row["tokens"], row["peak_mib"]) for row in measured)
    return y1 + (y1 - y0) / (x1 - x0) * (tokens - x1)


def page(rows: list[dict]) -> str:
    """The rows as a Markdown table: a line per pass and form, a column per number of tokens."""
    sizes = sorted({row["tokens"] for row in rows})
    text = [
        "# Memory of the log-prob pass",
        "",
        f"Peak above the memory before the pass, GiB: vocabulary {VOCABULARY}, hidden size {HIDDEN}, bfloat16, one CPU",
        f"thread, chunks of {CHUNK} tokens. Values with * continue the line through the measured ones, since they are",
        "above the limit of the benchmark. Written by scripts/bench_logprob_memory.py.",
        "",
        "| pass | form | " + " | ".join(f"{size} tokens" for size in sizes) + " |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for kind in PASSES:
        for form in FORMS:
            cells = {row["tokens"]: row for row in rows if row["form"] == form and row["pass"] == kind}
            if cells:
                values = [f"{cells[s]['peak_mib'] / 1024:.2f}{'' if cells[s]['measured'] else '*'}" for s in sizes]
                text.append(f"| {kind} | {form} | " + " | ".join(values) + " |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 3072, 4096, 16384])
    parser.add_argument("--limit-gib", type=float, default=6.0, help="largest expected peak that is still measured")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of logprob_memory.json and .md")
    parser.add_argument("--case", nargs=3, metavar=("FORM", "PASS", "TOKENS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        form, kind, tokens = arguments.case
        print(json.dumps(run_pass(form, kind, int(tokens))))
        return
    import torch

    cases = [(f, k) for k in PASSES for f in FORMS if not (k == "update" and f == "chunked_entropy")]
    rows = [row for f, k in cases for row in series(f, k, arguments.tokens, arguments.limit_gib * 1024)]
    facts = {"vocabulary": VOCABULARY, "hidden": HIDDEN, "chunk": CHUNK, "dtype": "bfloat16"}
    facts.update(torch=torch.__version__, machine=platform.machine(), rows=rows)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "logprob_memory.json").write_text(json.dumps(facts, indent=1) + "\n")
    (arguments.out / "logprob_memory.md").write_text(page(rows))


if __name__ == "__main__":
    main()
