import json
import re

import pytest

from seeupo_recipe.records.run import RecordError
from seeupo_recipe.study.build import Builder
from seeupo_recipe.study.transcripts import read_transcripts

HOSTILE = '</script><script>alert("owned")</script><img src=x onerror=alert(1)>&amp;{{ 7 * 7 }}'


def transcript(**values):
    base = {
        "iteration": 12,
        "split": "test",
        "task_id": "test-0",
        "sample": 0,
        "score": 1.0,
        "success": True,
        "stop": "done",
        "failure": None,
        "messages": [
            {"role": "user", "content": "N2 sym3 pwd4"},
            {"role": "assistant", "content": "LOGIN pwd4"},
            {"role": "tool", "content": "OK ses1"},
            {"role": "assistant", "content": HOSTILE, "tool_calls": [{"name": "f"}]},
        ],
        "turns": [{"advantage": 0.5, "m": 0.4}, {"advantage": 0.5, "m": None}],
    }
    return {**base, **values}


def write(run, *lines, torn=""):
    text = "".join(json.dumps(line) + "\n" for line in lines) + torn
    (run.record.folder / "transcripts.jsonl").write_text(text)


def page(world):
    (path,) = Builder("mini", (), world.overrides).report()
    return path.read_text()


def embedded(html):
    return json.loads(re.search(r'id="transcript-data">(.*?)</script>', html, re.S).group(1))


def test_transcripts_are_read_with_the_later_line_counting_and_a_torn_one_dropped(world):
    run = world.finish(world.cell())
    write(run, transcript(score=0.0), transcript(sample=1), transcript(), torn='{"iteration": 3')
    found = read_transcripts(run.record.folder)
    assert [(t.sample, t.score) for t in found] == [(0, 1.0), (1, 1.0)]
    messages = found[0].plain()["messages"]
    assert [m["m"] for m in messages] == [None, 0.4, None, None]
    assert [m["advantage"] for m in messages] == [None, 0.5, None, 0.5]
    assert '"name": "f"' in messages[3]["text"]
    assert read_transcripts(run.record.folder.parent) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (transcript(turns=[{"advantage": 1.0, "m": 1.0}]), "1 turns for 2 assistant messages"),
        (transcript(messages="hello"), "messages must be a list"),
        ({"iteration": 1}, "KeyError: 'messages'"),
    ],
)
def test_a_transcript_of_another_form_names_its_line(world, line, message):
    run = world.finish(world.cell())
    write(run, transcript(), line)
    with pytest.raises(RecordError, match=f"transcripts.jsonl, line 2: .*{message}"):
        read_transcripts(run.record.folder)


def test_long_messages_are_cut_and_say_so(world):
    run = world.finish(world.cell())
    write(run, transcript(messages=[{"role": "user", "content": "x" * 5000}], turns=[]))
    assert read_transcripts(run.record.folder)[0].plain()["messages"][0]["text"].endswith("\n[1000 more characters]")


def test_the_page_needs_nothing_from_outside_and_comes_out_the_same(world):
    world.finish(world.cell(backend="lab"), 0)
    world.finish(world.cell(backend="lab", variant="grpo-one"), 0)
    html = page(world)
    assert not re.search(r'(src|href)="(?!data:|#)', html) and "@import" not in html and "url(" not in html
    assert html.count("data:image/png;base64,") == 7
    for text in ("Table 2: methods compared (mini)", "Comparison with the paper", "make reproduce-table2 SCALE=mini"):
        assert text in html
    assert page(world) == html


def test_model_output_cannot_leave_its_place(world):
    run = world.finish(world.cell(backend="lab"), 0)
    write(run, transcript())
    html = page(world)
    assert "alert(" not in html.replace('alert(\\"owned\\")', "").replace("onerror=alert(1)", "")
    assert html.count("</script>") == 2, "the data's and the viewer's own"
    data = re.search(r'id="transcript-data">(.*?)</script>', html, re.S).group(1)
    assert not set(data) & set("<>&")
    assert embedded(html)[0]["episodes"][0]["messages"][3]["text"].startswith(HOSTILE)


def test_the_viewer_gets_the_untrained_policy_first_and_the_ends_of_training(world):
    base, seeupo = world.finish(world.cell(variant="base", backend="lab")), world.finish(world.cell(backend="lab"))
    write(base, transcript(iteration=0, turns=[]))
    write(seeupo, *(transcript(iteration=i, split="rollout", task_id="train-1") for i in (1, 6, 12)), transcript())
    other = world.finish(world.cell(backend="lab", variant="grpo-one"), 1)
    write(other, *(transcript(task_id=f"test-{i}") for i in range(9)))
    write(world.finish(world.cell(backend="lab", variant="grpo-one"), 2), transcript())
    runs = embedded(page(world))
    assert {run["run"] for run in runs} == {base.run_id, seeupo.run_id, other.run_id}, "the lowest seed of each cell"
    assert [run["run"] for run in runs][0] == base.run_id
    assert {run["group"] for run in runs} == {"mini/lab/vaulthop/tiny-qwen3"}
    ends = [(e["split"], e["iteration"]) for run in runs if run["run"] == seeupo.run_id for e in run["episodes"]]
    assert ends == [("rollout", 1), ("rollout", 12), ("test", 12)]
    assert [len(run["episodes"]) for run in runs if run["run"] == other.run_id] == [4]


def test_a_page_without_runs_says_what_is_missing(world):
    html = page(world)
    assert "No finished run to draw." in html and "No run has recorded transcripts." in html
    assert embedded(html) == []
