"""The installed ``bfcl-eval`` package: its version, its content hash, and its multi-turn tasks.

Only the parts that decide a multi-turn score are used (data, API classes, executor, checker); they need
``mpmath`` and nothing else of the package's pinned dependencies, which conflict with verl's.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

from seeupo_recipe.envs.base import Message
from seeupo_recipe.envs.bfcl.calls import Call, Functions, call_from_python

VERSION = "2026.3.23"
CONTENT = "9c31185e2e3e407c"
INSTALL = f"pip install --no-deps bfcl-eval=={VERSION} && pip install 'mpmath>=1.3'"

CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
API_DOCS = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "VehicleControlAPI": "vehicle_control.json",
}
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


@dataclass(frozen=True)
class Task:
    """One multi-turn task.

    Attributes:
        task_id: The package's id, or the generator's for bfcl-mini.
        classes: API classes in play, in the package's order (a later class wins a method name).
        config: Initial state per API class.
        user_turns: Messages that open each user turn.
        ground_truth: Reference calls of each user turn; empty means that the agent must not act.
        tools: Function schemas offered from the start.
        held_out: Function name -> index of the user turn that first offers it.
    """

    task_id: str
    classes: tuple[str, ...]
    config: Mapping[str, Any]
    user_turns: tuple[tuple[Message, ...], ...]
    ground_truth: tuple[tuple[Call, ...], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    held_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def category(self) -> str:
        return self.task_id.rpartition("_")[0]


@cache
def package_dir() -> Path:
    """Directory of the installed package.

    Raises:
        RuntimeError: If the package is missing, or is not the version these results are defined for.
    """
    spec = util.find_spec("bfcl_eval")
    if spec is None or util.find_spec("mpmath") is None:
        raise RuntimeError(f"BFCL needs the bfcl-eval package and mpmath: {INSTALL}")
    found = metadata.version("bfcl-eval")
    if found != VERSION:
        raise RuntimeError(f"bfcl-eval {found} is installed, but this benchmark is defined for {VERSION}: {INSTALL}")
    root = Path(next(iter(spec.submodule_search_locations)))
    content = content_hash(root)
    if content != CONTENT:
        raise RuntimeError(
            f"the files of bfcl-eval {VERSION} in {root} were changed (content {content}, published {CONTENT}): "
            f"reinstall it with pip install --force-reinstall --no-deps bfcl-eval=={VERSION}"
        )
    return root


def content_hash(root: Path) -> str:
    """Hash everything under ``root`` that can change a multi-turn score or prompt."""
    digest = hashlib.sha256()
    for path in _scored_files(root):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _scored_files(root: Path) -> Iterator[Path]:
    for category in CATEGORIES:
        yield root / "data" / f"BFCL_v4_{category}.json"
        yield root / "data" / "possible_answer" / f"BFCL_v4_{category}.json"
    for name in API_DOCS.values():
        yield root / "data" / "multi_turn_func_doc" / name
    engine = root / "eval_checker" / "multi_turn_eval"
    for name in (*(name.removesuffix(".json") for name in API_DOCS.values()), "long_context"):
        yield engine / "func_source_code" / f"{name}.py"
    yield engine / "multi_turn_checker.py"
    yield engine / "multi_turn_utils.py"
    yield root / "constants" / "executable_backend_config.py"
    yield root / "constants" / "default_prompts.py"


@cache
def functions_of(classes: tuple[str, ...]) -> Functions:
    """Documented functions of ``classes`` with each parameter's default (``inspect.Parameter.empty`` if none)."""
    merged: dict[str, Mapping[str, Any]] = {}
    for name in classes:
        merged |= _class_functions(name)
    return merged


@cache
def _class_functions(class_name: str) -> Functions:
    package_dir()
    module = f"bfcl_eval.eval_checker.multi_turn_eval.func_source_code.{API_DOCS[class_name].removesuffix('.json')}"
    api = getattr(importlib.import_module(module), class_name)
    return {
        doc["name"]: {
            name: parameter.default
            for name, parameter in inspect.signature(getattr(api, doc["name"])).parameters.items()
            if name != "self"
        }
        for doc in _function_docs(class_name)
    }


@cache
def _function_docs(class_name: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(_json_lines(package_dir() / "data" / "multi_turn_func_doc" / API_DOCS[class_name]))


@cache
def tool_schemas(class_name: str) -> Mapping[str, Mapping[str, Any]]:
    """Schemas of one API class by function name, as chat templates take them in ``tools=``."""
    return {doc["name"]: _tool_schema(doc) for doc in _function_docs(class_name)}


def _tool_schema(doc: Mapping[str, Any]) -> Mapping[str, Any]:
    returns = json.dumps(_json_schema(doc["response"]), ensure_ascii=False)
    return {
        "type": "function",
        "function": {
            "name": doc["name"],
            "description": f"{doc['description']} Returns: {returns}",
            "parameters": _json_schema(doc["parameters"]),
        },
    }


def _json_schema(node: Any) -> Any:
    """Rename the package's Python-like type names to JSON schema's."""
    if isinstance(node, dict):
        return {
            key: _JSON_TYPES.get(value, value) if key == "type" and isinstance(value, str) else _json_schema(value)
            for key, value in node.items()
        }
    return [_json_schema(item) for item in node] if isinstance(node, list) else node


@cache
def load_tasks(category: str) -> tuple[Task, ...]:
    """All tasks of one category, in the package's order."""
    data = package_dir() / "data"
    answers = {
        row["id"]: row["ground_truth"] for row in _json_lines(data / "possible_answer" / f"BFCL_v4_{category}.json")
    }
    return tuple(_task(row, answers[row["id"]]) for row in _json_lines(data / f"BFCL_v4_{category}.json"))


def _task(row: Mapping[str, Any], answer: list[list[str]]) -> Task:
    classes = tuple(row["involved_classes"])
    schemas: dict[str, Mapping[str, Any]] = {}
    for name in classes:
        schemas |= tool_schemas(name)
    held_out = {name: int(turn) for turn, names in row.get("missed_function", {}).items() for name in names}
    user_turns = []
    for index, messages in enumerate(row["question"]):
        late = [schemas[name] for name, turn in held_out.items() if turn == index]
        user_turns.append((_late_functions_message(late),) if late else tuple(messages))
    functions = functions_of(classes)
    return Task(
        task_id=row["id"],
        classes=classes,
        config=row["initial_config"],
        user_turns=tuple(user_turns),
        ground_truth=tuple(tuple(call_from_python(text, functions) for text in turn) for turn in answer),
        tools=tuple(schema for name, schema in schemas.items() if name not in held_out),
        held_out=held_out,
    )


def _late_functions_message(schemas: list[Mapping[str, Any]]) -> Message:
    """The user message that hands held-out functions back, in the package's own words."""
    from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING as template

    return {"role": "user", "content": template.format(functions="\n".join(json.dumps(s) for s in schemas))}


def _json_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
