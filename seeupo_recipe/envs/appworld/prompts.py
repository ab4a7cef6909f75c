"""Prompt and observation texts of the official tasks (ReAct with code actions)."""

from __future__ import annotations

from typing import Any

from seeupo_recipe.envs.base import Message

_INSTRUCTIONS = """\
You act for {first_name} {last_name}, your supervisor, by writing Python code that calls the APIs of their apps. \
Nobody answers questions on the way: decide on your own.

How it works:
- First think about the next step, then write exactly one code block that starts with ```python and ends with ```. \
Only the first block of a message is run.
- The block runs in a Python session that keeps its variables. What it prints is shown to you; nothing else is.
- The APIs are called as apis.APP.API(name=value, ...), with named arguments only. A failed call raises an exception.
- Read the documentation before you use an API: apis.api_docs.show_app_descriptions() lists the apps, \
apis.api_docs.show_api_descriptions(app_name=...) an app's APIs, and \
apis.api_docs.show_api_doc(app_name=..., api_name=...) the arguments and results of one.
- The supervisor app gives personal data and the passwords of the other apps; most of their APIs need the \
access_token that their login returns.
- Many APIs return one page at a time: go through all pages where the task needs it.
- Files, processes and the network are out of reach; so are other modules than the usual ones for computing.
- Change only what the task asks for. Use exact values from the apps, never made-up ones.
- When the task is done, call apis.supervisor.complete_task(). If it asks for information, pass it as short as \
possible: apis.supervisor.complete_task(answer=...). If it cannot be done, call \
apis.supervisor.complete_task(status="fail").

The apps:
{apps}"""

_TASK = """\
My name is {first_name} {last_name}. My email address is {email} and my phone number is {phone_number}. \
It is {datetime}.

Task: {instruction}"""


def react_prompt(opened: dict[str, Any]) -> tuple[Message, ...]:
    """System message and task message from what a world's ``reset`` returns."""
    supervisor = opened["supervisor"]
    apps = "\n".join(f"- {app}: {description}" for app, description in opened["app_descriptions"].items())
    return (
        {"role": "system", "content": _INSTRUCTIONS.format(**supervisor, apps=apps)},
        {
            "role": "user",
            "content": _TASK.format(
                **supervisor, instruction=opened["instruction"], datetime=opened["datetime"].replace("T", " ")
            ),
        },
    )


def react_observation(output: str) -> str:
    """An output as the content of a message."""
    return f"Output:\n```\n{output}\n```"


def bare_prompt(opened: dict[str, Any]) -> tuple[Message, ...]:
    """The instruction alone."""
    return ({"role": "user", "content": opened["instruction"]},)
