"""Deterministic task specifications of ``appworld-mini``, by split.

A scenario is one person and one kind of request; its three tasks ask about different records, so they
are one cluster for statistics, as in AppWorld. ``dev`` has the official split's 57 tasks in 19
scenarios; ``warm_start`` is for supervised warm starts and disjoint from the others.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np

from seeupo_recipe.seeding import stream

from .families import AMOUNTS, APPS, FAMILIES, FAMILY, FIRST_NAMES, LAST_NAMES, PROFILE_FIELDS, SEXES, WORDS

SEED = 1
TASKS_PER_SCENARIO = 3
SCENARIOS = {"train": 60, "dev": 19, "test_normal": 19, "warm_start": 120}
DATE_AND_TIME = "2023-05-18T12:00:00"

_USER_ID = 1
_OPENING_BALANCE = 50.0

Record = tuple[str, str, dict[str, Any]]


@dataclass(frozen=True)
class Question:
    """What tells one task of a scenario from the others.

    Attributes:
        values: What the instruction's placeholders stand for.
        records: ``(app, model, fields)`` in order of creation, so that a model's ids count from 1.
        answer: The right answer, or None if the task has none.
        private: Facts that the evaluation program compares with.
        balance: The supervisor's venmo balance in dollars.
    """

    values: dict[str, Any]
    records: list[Record] = field(default_factory=list)
    answer: str | None = None
    private: dict[str, Any] = field(default_factory=dict)
    balance: float = _OPENING_BALANCE


@dataclass(frozen=True)
class TaskSpec:
    """All that the data folder needs to know of a task: id ``{scenario}_{number}``, people, records, truth."""

    id: str
    family: str
    person: dict[str, str]
    passwords: dict[str, str]
    question: Question

    @property
    def instruction(self) -> str:
        return FAMILY[self.family].instruction.format(**self.question.values)


def task_specs(split: str) -> list[TaskSpec]:
    """Specifications of a split's tasks, the families in turn."""
    return [spec for index in range(SCENARIOS[split]) for spec in _scenario(split, index)]


def build_input(splits: Iterable[str] = tuple(SCENARIOS)) -> dict[str, Any]:
    """What :mod:`seeupo_recipe.envs.appworld.world.build` makes the data folder from (JSON values only)."""
    specs = {split: task_specs(split) for split in splits}
    return {
        "date_and_time": DATE_AND_TIME,
        "splits": {split: [spec.id for spec in members] for split, members in specs.items()},
        "programs": {family.name: _evaluation_program(family.name) for family in FAMILIES},
        "tasks": [asdict(spec) | {"instruction": spec.instruction} for members in specs.values() for spec in members],
    }


@cache
def content_hash() -> str:
    """Hash of everything that a score depends on: specifications, instructions, evaluation programs."""
    return hashlib.sha256(json.dumps(build_input(), sort_keys=True).encode()).hexdigest()[:12]


def _evaluation_program(family: str) -> str:
    return importlib.resources.files(__package__).joinpath("evaluations", f"{family}.py").read_text()


def _scenario(split: str, index: int) -> list[TaskSpec]:
    family = FAMILIES[index % len(FAMILIES)]
    rng = stream(SEED, "appworld-mini", split, index)
    first_name = str(rng.choice(FIRST_NAMES))
    person = {
        "first_name": first_name,
        "last_name": str(rng.choice(LAST_NAMES)),
        "email": f"{first_name.lower()}@mail.com",
        "phone_number": str(rng.integers(10**9, 10**10)),
        "birthday": "1990-01-02",
        "sex": str(rng.choice(SEXES)),
    }
    accounts = [family.app] if family.app in APPS else []
    distractors = [app for app in APPS if app != family.app]
    accounts += [str(app) for app in rng.choice(distractors, 2 - len(accounts), replace=False)]
    passwords = dict(zip(sorted(accounts), _words(rng, len(accounts)), strict=True))
    return [
        TaskSpec(f"{split.replace('_', '')}{index:03d}{family.name}_{number}", family.name, person, passwords, question)
        for number, question in enumerate(_QUESTIONS[family.name](rng, person), start=1)
    ]


def _words(rng: np.random.Generator, count: int) -> list[str]:
    return [str(word) for word in rng.choice(WORDS, count, replace=False)]


def _titles(rng: np.random.Generator, count: int) -> list[str]:
    """Distinct titles of one or two words, without a word in common."""
    words = _words(rng, 2 * count)
    return [" ".join(words[2 * i : 2 * i + int(rng.integers(1, 3))]) for i in range(count)]


def _people(rng: np.random.Generator, person: dict[str, str], count: int) -> dict[str, str]:
    """Email addresses of other people by first name."""
    names = [name for name in FIRST_NAMES if name != person["first_name"]]
    chosen = [str(name) for name in rng.choice(names, count, replace=False)]
    return {name: f"{word}@mail.com" for name, word in zip(chosen, _words(rng, count), strict=True)}


def _targets(rng: np.random.Generator, count: int) -> list[int]:
    """Indices of the records that the scenario's tasks are about."""
    return [int(i) for i in rng.choice(count, TASKS_PER_SCENARIO, replace=False)]


def _profile(rng: np.random.Generator, person: dict[str, str]) -> list[Question]:
    return [Question({"field": name}, answer=person[name]) for name in PROFILE_FIELDS]


def _balance(rng: np.random.Generator, person: dict[str, str]) -> list[Question]:
    amounts = [float(amount) for amount in rng.choice(np.arange(10, 100), TASKS_PER_SCENARIO, replace=False)]
    return [Question({}, answer=str(amount), balance=amount) for amount in amounts]


def _contact(rng: np.random.Generator, person: dict[str, str]) -> list[Question]:
    people = _people(rng, person, 4)
    records: list[Record] = [
        ("phone", "Contact", {"user_id": _USER_ID, "first_name": name, "last_name": LAST_NAMES[0], "email": email})
        for name, email in people.items()
    ]
    names = list(people)
    return [Question({"name": names[i]}, records, answer=people[names[i]]) for i in _targets(rng, len(names))]


def _note(rng: np.random.Generator, person: dict[str, str]) -> list[Question]:
    titles, contents = _titles(rng, 4), _words(rng, 4)
    records: list[Record] = [
        ("simple_note", "Note", {"user_id": _USER_ID, "title": title, "content": content})
        for title, content in zip(titles, contents, strict=True)
    ]
    return [Question({"title": titles[i]}, records, answer=contents[i]) for i in _targets(rng, 4)]


def _song(rng: np.random.Generator, person: dict[str, str]) -> list[Question]:
    titles = _titles(rng, 5)
    song = {"artist_ids": [1], "album_id": None, "duration": 180, "genre": "rock", "release_date": DATE_AND_TIME}
    records: list[Record] = [("spotify", "Artist", {"name": "Band", "genre": "rock"})]
    records += [("spotify", "Song", {"title": title, **song}) for title in titles]
    return [Question({"title": titles[i]}, records, private={"id": i + 1}) for i in _targets(rng, 5)]


def _alarm(rng: np.random.Generator, person: dict[str, str]) -> list[Question]:
    titles = _titles(rng, 4)
    records: list[Record] = [
        ("phone", "Alarm", {"user_id": _USER_ID, "time": f"0{hour}:00", "label": title, "enabled": True})
        for hour, title in enumerate(titles, start=5)
    ]
    return [Question({"title": titles[i]}, records, private={"id": i + 1}) for i in _targets(rng, 4)]


def _todo(rng: np.random.Generator, person: dict[str, str]) -> list[Question]:
    projects, titles = _titles(rng, 2), _titles(rng, 6)
    records: list[Record] = []
    for project in (1, 2):
        records.append(("todoist", "Project", {"user_id": _USER_ID, "name": projects[project - 1], "color": "red"}))
        records.append(("todoist", "ProjectCollaboratorLink", {"user_id": _USER_ID, "project_id": project}))
    for i, title in enumerate(titles):
        place = {"project_id": i // 3 + 1, "order_index": i % 3}
        records.append(("todoist", "Task", {"user_id": _USER_ID, "title": title, "priority": "low", **place}))
    return [
        Question({"title": titles[i], "project": projects[i // 3]}, records, private={"id": i + 1})
        for i in _targets(rng, 6)
    ]


def _payment(rng: np.random.Generator, person: dict[str, str]) -> list[Question]:
    people = _people(rng, person, 4)
    names = list(people)
    records: list[Record] = [
        ("venmo", "User", {"first_name": name, "last_name": LAST_NAMES[0], "email": email, "password": WORDS[0]})
        for name, email in people.items()
    ]
    amounts = [int(amount) for amount in rng.choice(AMOUNTS, TASKS_PER_SCENARIO)]
    return [
        Question(
            {"amount": amount, "name": names[i]},
            records,
            private={"id": _USER_ID + 1 + i, "amount": amount, "balance": _OPENING_BALANCE - amount},
        )
        for amount, i in zip(amounts, _targets(rng, len(names)), strict=True)
    ]


def _file(rng: np.random.Generator, person: dict[str, str]) -> list[Question]:
    home = f"/home/{person['first_name'].lower()}/"
    titles = _words(rng, 4)
    records: list[Record] = [
        ("file_system", "Directory", {"user_id": _USER_ID, "path": path}) for path in ("/", "/home/", home)
    ]
    records += [
        ("file_system", "File", {"user_id": _USER_ID, "path": f"{home}{title}.txt", "content": title})
        for title in titles
    ]
    return [Question({"title": titles[i]}, records, private={"id": i + 1}) for i in _targets(rng, 4)]


_QUESTIONS: dict[str, Callable[[np.random.Generator, dict[str, str]], list[Question]]] = {
    "profile": _profile,
    "balance": _balance,
    "contact": _contact,
    "note": _note,
    "song": _song,
    "alarm": _alarm,
    "todo": _todo,
    "payment": _payment,
    "file": _file,
}
