"""The task families of ``appworld-mini``: what is asked, and the turns that solve it.

A family is data: an instruction and the code of each turn, with ``{placeholders}`` that are filled from
the instruction or from what an earlier turn printed. The demonstrator, the vocabulary and the task
generator all read these tables. The code is written without spaces, so that a policy whose tokens are
words and symbols can write it token by token.
"""

from __future__ import annotations

from dataclasses import dataclass

WORDS = (
    *("amber", "birch", "cedar", "coral", "delta", "ember", "grove", "hazel"),
    *("ivory", "lemon", "maple", "ocean", "pearl", "river", "sunny", "tiger"),
)
FIRST_NAMES = ("Ana", "Bob", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana")
LAST_NAMES = ("Cole", "Hill", "Park", "Reed", "Stone", "West")
SEXES = ("female", "male")
PROFILE_FIELDS = ("first_name", "last_name", "sex")
AMOUNTS = tuple(range(2, 10))
APPS = ("file_system", "phone", "simple_note", "spotify", "todoist", "venmo")


@dataclass(frozen=True)
class Turn:
    """One code action of a demonstration.

    Attributes:
        code: The action with placeholders.
        binds: Placeholder that this turn's output fills, if any.
        beside: Placeholder whose value stands on the same output line as the one to bind; without it
            the whole output is bound.
    """

    code: str
    binds: str | None = None
    beside: str | None = None


@dataclass(frozen=True)
class Family:
    """A kind of task.

    Attributes:
        name: Family name, also that of its evaluation program.
        app: App that the task is about; ``supervisor`` needs no login.
        instruction: What the supervisor asks.
        turns: A shortest solution.
    """

    name: str
    app: str
    instruction: str
    turns: tuple[Turn, ...]


def _log_in(app: str) -> tuple[Turn, Turn]:
    user = "phone_number" if app == "phone" else "email"
    passwords = _print_each("supervisor.show_account_passwords()", "account_name", "password")
    return (
        Turn(passwords, binds="password", beside="app"),
        Turn(
            f't=apis.{app}.login(username=apis.supervisor.show_profile()["{user}"],password="{{password}}")'
            '["access_token"]'
        ),
    )


def _print_each(call: str, *fields: str) -> str:
    values = ",".join(f'x["{field}"]' for field in fields)
    return f"[print({values})for(x)in(apis.{call})]"


_ANSWER = Turn('apis.supervisor.complete_task(answer="{answer}")')
_COMPLETE = Turn("apis.supervisor.complete_task()")

FAMILIES = (
    Family(
        "profile",
        "supervisor",
        "What is my {field}?",
        (Turn('print(apis.supervisor.show_profile()["{field}"])', binds="answer"), _ANSWER),
    ),
    Family(
        "balance",
        "venmo",
        "How much money is in my venmo?",
        (
            *_log_in("venmo"),
            Turn('print(apis.venmo.show_venmo_balance(access_token=t)["venmo_balance"])', binds="answer"),
            _ANSWER,
        ),
    ),
    Family(
        "contact",
        "phone",
        "What is the email of {name}?",
        (
            *_log_in("phone"),
            Turn(
                _print_each("phone.search_contacts(access_token=t)", "first_name", "email"),
                binds="answer",
                beside="name",
            ),
            _ANSWER,
        ),
    ),
    Family(
        "note",
        "simple_note",
        "What does my note {title} say?",
        (
            *_log_in("simple_note"),
            Turn(
                _print_each("simple_note.search_notes(access_token=t)", "note_id", "title"),
                binds="id",
                beside="title",
            ),
            Turn('print(apis.simple_note.show_note(note_id={id},access_token=t)["content"])', binds="answer"),
            _ANSWER,
        ),
    ),
    Family(
        "song",
        "spotify",
        "Like the song {title}.",
        (
            *_log_in("spotify"),
            Turn(_print_each("spotify.search_songs()", "song_id", "title"), binds="id", beside="title"),
            Turn("apis.spotify.like_song(song_id={id},access_token=t)"),
            _COMPLETE,
        ),
    ),
    Family(
        "alarm",
        "phone",
        "Turn off the alarm {title}.",
        (
            *_log_in("phone"),
            Turn(_print_each("phone.show_alarms(access_token=t)", "alarm_id", "label"), binds="id", beside="title"),
            Turn("apis.phone.update_alarm(alarm_id={id},enabled=False,access_token=t)"),
            _COMPLETE,
        ),
    ),
    Family(
        "todo",
        "todoist",
        "Give the task {title} in the project {project} high priority.",
        (
            *_log_in("todoist"),
            Turn(
                _print_each("todoist.show_projects(access_token=t)", "project_id", "name"),
                binds="project_id",
                beside="project",
            ),
            Turn(
                _print_each(
                    'todoist.show_tasks(project_id={project_id},access_token=t)["no_section_tasks"]', "task_id", "title"
                ),
                binds="id",
                beside="title",
            ),
            Turn('apis.todoist.update_task(task_id={id},priority="high",access_token=t)'),
            _COMPLETE,
        ),
    ),
    Family(
        "payment",
        "venmo",
        "Send {amount} dollars to {name}.",
        (
            *_log_in("venmo"),
            Turn(
                _print_each("venmo.search_users(access_token=t)", "first_name", "email"),
                binds="email",
                beside="name",
            ),
            Turn('apis.venmo.create_transaction(receiver_email="{email}",amount={amount},access_token=t)'),
            _COMPLETE,
        ),
    ),
    Family(
        "file",
        "file_system",
        "Delete my file {title}.txt",
        (
            *_log_in("file_system"),
            Turn('apis.file_system.delete_file(file_path="~/{title}.txt",access_token=t)'),
            _COMPLETE,
        ),
    ),
)

FAMILY = {family.name: family for family in FAMILIES}
