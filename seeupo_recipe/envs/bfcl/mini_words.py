"""What users of bfcl-mini talk about, and how they say it. The wording is this project's own."""

from __future__ import annotations

from collections.abc import Mapping

from seeupo_recipe.envs.bfcl.mini_language import words

FILES = words("agenda budget draft essay invoice letter log memo notes outline plan recipe report survey todo summary")
FOLDERS = words("archive backup desk inbox old private shared work")
WORDS = words("amber birch cedar coral ember frost grove harbor ivory jade lunar maple olive pearl quartz river")
NAMES = words("Alice Bob Carol Dave Erin Frank Grace Heidi")
PLACES = words("Ashford Brookside Cliffton Dunmore Eastfield Fairview Glenwood Hillcrest")
SYMBOLS = words("AAPL GOOG MSFT NVDA TSLA AMZN")
USER_IDS = tuple(f"USR{number:03d}" for number in range(1, 26))

REQUESTS: Mapping[str, tuple[str, ...]] = {
    "create": ("Create an empty file {file}.", "I need a new file {file}."),
    "write": ("Write {word} into a new file {file}.", "Make a file {file} that says {word}."),
    "replace": ("Replace the text of {file} with {word}.", "Let {file} say {word} instead."),
    "read": ("What does {file} say?", "Show me {file}."),
    "copy": ("Put a copy of {file} into {folder}.", "Copy {file} to {folder}."),
    "move": ("Move {file} into {folder}.", "Put {file} into {folder}."),
    "rename": ("Rename {file} to {new}.", "Call {file} {new} from now on."),
    "collect": ("Make a folder {folder} and move {file} there.", "Put {file} into a new folder {folder}."),
    "delete": ("Delete {file}.", "Please remove {file}."),
    "fuel": ("Add {number} gallons of fuel.", "Put {number} gallons into the tank."),
    "lights": ("Set the headlights to {mode}.", "Headlights {mode}, please."),
    "navigate": ("Take me to {place}.", "Navigate to {place}."),
    "climate": ("Set the temperature to {number} degrees.", "Make it {number} degrees in here."),
    "park": ("Use the parking brake: {mode}.", "Parking brake {mode}."),
    "start": ("Start the engine.", "Get the car running."),
    "ticket_login": ("Log in to the help desk as {name}, password {word}.", "I am {name}, password {word}."),
    "open": ("Open a ticket about {word}, priority {number}.", "File a ticket on {word} with priority {number}."),
    "show": ("Show me ticket {number}.", "What is ticket {number} about?"),
    "close": ("Close ticket {number}.", "Ticket {number} can be closed."),
    "resolve_new": ("Resolve the new ticket with the note {word}.", "Solve it with the note {word}."),
    "send": ("Send {word} to {name}.", "Tell {name} {word}."),
    "unsend": ("Delete my last message to {name}.", "Take back what I sent to {name}."),
    "contact": ("Add {name} to my contacts.", "Make {name} a contact."),
    "order": ("{side} {number} shares of {symbol} at the market price.", "{side} {number} of {symbol} now."),
    "cancel": ("Cancel the order.", "Call that order off."),
    "watch": ("Watch {symbol} for me.", "Put {symbol} on my list."),
    "unwatch": ("Stop watching {symbol}.", "Take {symbol} off my list."),
    "post_login": ("Log in as {name}, password {word}.", "Sign in: {name}, password {word}."),
    "post": ("Post {word}.", "Publish {word}."),
    "follow": ("Follow {name}.", "Start following {name}."),
    "comment_new": ("Comment {word} below it.", "Add the comment {word} to that post."),
    "repost": ("Repost number {number}.", "Share post {number} again."),
}
"""What a user says, by kind of turn."""

VALUES = (FILES, FOLDERS, WORDS, NAMES, PLACES, SYMBOLS, USER_IDS, tuple(map(str, range(100))))
"""Pools of the values that fill requests and calls."""
