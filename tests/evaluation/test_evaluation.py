import csv
import json

import pytest

from seeupo_recipe.compose import compose_config
from seeupo_recipe.envs.base import load_benchmark
from seeupo_recipe.envs.bfcl.qwen import to_text
from seeupo_recipe.export import main as export
from seeupo_recipe.lab.session import run_cell
from seeupo_recipe.records.run import RunRecord
from seeupo_recipe.runs import open_run
from seeupo_recipe.study.evaluation.__main__ import main
from seeupo_recipe.study.evaluation.tables import evaluation_document
from seeupo_recipe.study.transcripts import read_transcripts


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("SEEUPO_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


def outcomes(folder):
    return {
        (r["task_id"], r["sample"]): (r["score"], r["turns"], r["stop_reason"]) for r in RunRecord(folder).evaluations()
    }


# ---- local models -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", ["vaulthop", "vaulthop-trap", "bfcl-mini"])
def test_a_local_model_is_evaluated_on_any_benchmark(bench, results, capsys):
    assert main(["--bench", bench, "--model", "tiny-qwen3", "--k", "2", "--tasks", "4"]) == 0
    (folder,) = (results / "eval").iterdir()
    rows = RunRecord(folder).evaluations()
    assert len(rows) == 8 and RunRecord(folder).finished
    assert "avg@2" in capsys.readouterr().out
    (overall, *_) = csv.DictReader((folder / "evaluation.csv").open())
    assert float(overall["avg@2"]) == pytest.approx(sum(r["score"] for r in rows) / 8)
    found = read_transcripts(folder)
    assert {(t.task_id, t.sample, t.score) for t in found} == {(r["task_id"], r["sample"], r["score"]) for r in rows}


def test_an_exported_run_evaluates_to_what_its_training_recorded(tmp_path, monkeypatch):
    """The final evaluation of a run and ``make eval`` of its export play the same episodes."""
    monkeypatch.setenv("SEEUPO_OUTPUTS", str(tmp_path / "outputs"))
    small = ["backend=lab", "training.iterations=1", "training.tasks_per_iteration=4", "training.learning_rate=0.01"]
    run = open_run(compose_config([*small, "benchmark.test_split=validation", "evaluation.samples_per_task=1"]))
    run_cell(run)
    assert export([run.run_id, "--out", str(tmp_path / "policy")]) == 0
    command = ["--bench", "vaulthop", "--k", "1", "--split", "validation", "--concurrency", "64"]
    for name, model in (("trained", str(tmp_path / "policy")), ("untrained", "tiny-qwen3")):
        assert main([*command, "--model", model, "--out", str(tmp_path / name)]) == 0
    assert outcomes(tmp_path / "trained") == outcomes(run.record.folder)
    assert outcomes(tmp_path / "untrained") != outcomes(run.record.folder)


def test_a_stopped_evaluation_goes_on_and_more_samples_add_to_it(tmp_path, capsys):
    command = ["--bench", "vaulthop", "--model", "tiny-qwen3", "--concurrency", "5", "--tasks", "6", "--out"]
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    assert main([*command, str(whole), "--k", "3"]) == 0
    assert main([*command, str(resumed), "--k", "1"]) == 0
    path = resumed / "eval.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]) + lines[4][:20])  # killed within a line
    assert main([*command, str(resumed), "--k", "3"]) == 0
    assert outcomes(resumed) == outcomes(whole) and len(RunRecord(resumed).evaluations()) == 18
    assert (resumed / "evaluation.md").read_text() == (whole / "evaluation.md").read_text()
    assert (resumed / "evaluation.csv").read_text() == (whole / "evaluation.csv").read_text()
    assert main([*command, str(whole), "--model", "tiny-qwen2.5"]) == 2
    assert "belongs to another run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bench", "vaulthob"], "BENCH=vaulthob: did you mean vaulthop?"),
        (["--model", "tiny-qwen4"], "MODEL=tiny-qwen4: neither a URL, nor a folder with a config.json"),
        (["--model", "ftp://x"], "ftp://x: not an http(s) URL"),
        (["--split", "tset"], "SPLIT=tset: vaulthop has no split 'tset'"),
        (["--tasks", "test-0,test-x"], "TASKS=test-x: not in split test"),
        (["--k", "0"], "K=0: give a number from 1"),
        (["--concurrency", "0"], "CONCURRENCY=0: give a number from 1"),
        (["model.path=results/none"], "MODEL=tiny-qwen3: no weights in results/none"),
        (["model.template=reakt"], "MODEL=tiny-qwen3: unknown context template 'reakt'"),
        (["evaluation.temperature=0"], "evaluation.temperature=0 makes all samples of a task equal"),
        (["benchmark.max_turn=3"], "unknown key 'benchmark.max_turn'"),
    ],
)
def test_wrong_arguments_give_one_line(arguments, message, results, capsys):
    assert main(["--model", "tiny-qwen3", *arguments]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error.splitlines()[-1] and "Traceback" not in error
    assert not results.exists()


# ---- an endpoint on BFCL ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_tasks():
    """Tasks whose reference solution fits into ten messages and has a second user turn."""
    tasks = load_benchmark("bfcl").tasks.values()
    fits = [t for t in tasks if t.category == "multi_turn_base" and sum(2 if g else 1 for g in t.ground_truth) <= 10]
    return {task.user_turns[0][0]["content"]: task for task in fits[:40]}


def reference(short_tasks, *, native, repeats=1):
    """Answers with the reference solution, as text or as the endpoint's own tool calls."""

    def answer(body):
        messages = body["messages"]
        for i, message in enumerate(messages):
            calls = [c["id"] for c in message.get("tool_calls", ())]
            if calls != [m.get("tool_call_id") for m in messages[i + 1 : i + 1 + len(calls)]]:
                return 400, "every call needs an answer"
        users = [i for i, m in enumerate(messages) if m["role"] == "user"]
        task = short_tasks[messages[users[0]]["content"]]
        calls = [c for c in task.ground_truth[len(users) - 1] for _ in range(repeats)]
        if messages[-1]["role"] != "user" or not calls:
            return {"content": "Done."}
        if not native:
            return {"content": to_text(calls)}
        return {
            "content": None,
            "tool_calls": [
                {"id": f"{len(messages)}-{i}", "function": {"name": c.name, "arguments": json.dumps(dict(c.arguments))}}
                for i, c in enumerate(calls)
            ],
        }

    return answer


def bfcl(server, short_tasks, out, *arguments, k="2", count=5):
    tasks = ",".join(task.task_id for task in list(short_tasks.values())[:count])
    options = ["--split", "base", "--tasks", tasks, "--k", k, "--concurrency", "4", "--out", str(out), *arguments]
    return main(["--bench", "bfcl", "--model", server.url, *options])


@pytest.mark.parametrize("native", [False, True], ids=["text", "tool calls"])
def test_the_reference_solution_through_an_endpoint_passes(native, server, short_tasks, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server.answer = reference(short_tasks, native=native)
    assert bfcl(server, short_tasks, tmp_path / "e") == 0
    record = RunRecord(tmp_path / "e")
    assert len(record.evaluations()) == 10 and all(r["success"] for r in record.evaluations())
    table = capsys.readouterr().out
    for text in ("100.0 [100.0, 100.0]", "By category", "multi_turn_base", "By number of user turns"):
        assert text in table
    assert server.requests[0]["tools"] and record.manifest()["identity"]["weights"] == f"{server.url}/v1 tiny"
    assert server.headers[0]["Authorization"] == "Bearer sk-secret"
    assert not [path for path in (tmp_path / "e").iterdir() if "sk-secret" in path.read_text()]


def test_passes_with_doubled_calls_are_counted_and_still_pass(server, short_tasks, tmp_path):
    server.answer = reference(short_tasks, native=True, repeats=2)
    assert bfcl(server, short_tasks, tmp_path / "e", k="1", count=20) == 0
    rows = RunRecord(tmp_path / "e").evaluations()
    passes = [r for r in rows if r["success"]]
    assert 0 < len(passes) < 20, "the checker notices doubled calls in some tasks only"
    found = {line["event"]: line for line in csv.DictReader((tmp_path / "e" / "evaluation-weaknesses.csv").open())}
    assert found["repeated_calls"]["passes_with"] == found["repeated_calls"]["passes"] == str(len(passes))
    assert found["must_not_act_turns_with_calls"]["passes_with"] == "0"


def test_an_endpoint_that_fails_in_the_middle_loses_no_episode(server, short_tasks, tmp_path, capsys):
    solve = reference(short_tasks, native=True)
    server.answer = lambda body: solve(body) if len(server.requests) < 25 else (401, "key expired")
    assert bfcl(server, short_tasks, tmp_path / "e") == 1
    error = capsys.readouterr().err
    assert "answered 401: key expired; what was played is kept" in error
    done = RunRecord(tmp_path / "e").evaluations()
    assert 0 < len(done) < 10 and RunRecord(tmp_path / "e").status()["state"] == "interrupted"
    server.answer = solve
    assert bfcl(server, short_tasks, tmp_path / "e") == 0
    rows = RunRecord(tmp_path / "e").evaluations()
    assert rows[: len(done)] == done and all(r["success"] for r in rows)
    assert len({(r["task_id"], r["sample"]) for r in rows}) == len(rows) == 10


# ---- tables -----------------------------------------------------------------------------------------


def row(task, sample, score, failure=None, **info):
    facts = {"success": None if failure else score == 1.0, "score": None if failure else score, "failure": failure}
    return {
        "task_id": task,
        "sample": sample,
        "cluster": task,
        "stop_reason": "done",
        "cut_turns": 0,
        "info": {} if failure else info,
        **facts,
    }


def test_tables_equal_plain_loops():
    scores = {"a": (1, 0, 0), "b": (0, 0, 0), "c": (1, 1, None), "d": (0, 1, 1)}
    group = {"a": 2, "b": 2, "c": 3, "d": 3}
    rows = [
        row(t, i, s, failure="broken" if s is None else None, user_turns=group[t])
        for t, values in scores.items()
        for i, s in enumerate(values)
    ]
    document = evaluation_document(rows, 3, name="x", intro=())
    lines = {(line["by"], line["value"]): line for line in document.frames[""].to_dict("records")}
    whole, two, three = lines["all", "all tasks"], lines["user_turns", "2"], lines["user_turns", "3"]
    assert whole["avg@3"] == pytest.approx((1 / 3 + 0 + 1 + 2 / 3) / 4)
    assert whole["pass@3"] == pytest.approx(2 / 3), "c has only two episodes that count"
    assert (whole["tasks"], whole["episodes"], whole["environment_failures"]) == (4, 12, 1)
    assert two["avg@3"] == pytest.approx(1 / 6) and two["pass@3"] == 0.5
    assert three["avg@3"] == pytest.approx(5 / 6) and three["environment_failures"] == 1
    assert two["avg@3_low"] <= two["avg@3"] <= two["avg@3_high"]
    assert set(document.frames) == {""}, "no weaknesses where the benchmark does not count them"


def test_weaknesses_are_counted_over_passes_and_change_no_score():
    rows = [
        row("a", 0, 1.0, repeated_calls=2, must_not_act_turns_with_calls=0),
        row("b", 0, 1.0, repeated_calls=0, must_not_act_turns_with_calls=1),
        row("c", 0, 0.0, repeated_calls=1, must_not_act_turns_with_calls=1),
        row("d", 0, 1.0, repeated_calls=0, must_not_act_turns_with_calls=0),
    ]
    document = evaluation_document(rows, 1, name="x", intro=())
    counted = document.frames["weaknesses"].set_index("event")
    assert counted.loc["repeated_calls"].tolist() == [4, 2, 3, 1]
    assert counted.loc["must_not_act_turns_with_calls"].tolist() == [4, 2, 3, 1]
    assert document.frames[""]["avg@1"].tolist()[0] == 0.75
