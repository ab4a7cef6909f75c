"""Templates of bfcl-mini: user requests and their reference calls on six API classes of bfcl-eval.

Every domain is a generator of turns over a small simulated state, so that the reference calls always succeed.
Nothing is taken from the data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seeupo_recipe.envs.bfcl.calls import Call
from seeupo_recipe.envs.bfcl.mini_language import ACTIONS
from seeupo_recipe.envs.bfcl.mini_words import FILES, FOLDERS, NAMES, PLACES, REQUESTS, SYMBOLS, USER_IDS, WORDS


@dataclass(frozen=True)
class Turn:
    """One user request with its reference calls."""

    kind: str
    slots: Mapping[str, Any]
    calls: tuple[Call, ...]

    def request(self, rng: np.random.Generator) -> str:
        return pick(rng, REQUESTS[self.kind]).format(**self.slots)


Turns = Iterator[Turn]
"""An endless stream of turns that fit the state the earlier ones made."""


def pick(rng: np.random.Generator, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


def sample(rng: np.random.Generator, items: Sequence[Any], count: int) -> list[Any]:
    return [items[index] for index in rng.permutation(len(items))[:count]]


def call(name: str, *values: Any) -> Call:
    return Call(name, {slot.name: value for slot, value in zip(ACTIONS[name], values, strict=True)})


def file_system(rng: np.random.Generator) -> tuple[dict[str, Any], Turns]:
    names, folders = sample(rng, FILES, len(FILES)), sample(rng, FOLDERS, len(FOLDERS))
    files, folder = {name: pick(rng, WORDS) for name in names[:3]}, folders.pop()
    contents = {name: {"type": "file", "content": word} for name, word in files.items()}
    contents[folder] = {"type": "directory", "contents": {}}
    config = {"root": {"home": {"type": "directory", "contents": contents}}}
    fresh = names[3:]

    def turns() -> Turns:
        copied: set[str] = set()
        while True:
            kinds = ["create", "write", "collect", "replace", "read", "copy", "move", "rename", "delete"]
            kind = pick(rng, kinds if files else kinds[:2])
            file = pick(rng, list(files)) if files else None
            word, new = pick(rng, WORDS), fresh[-1]
            if kind in ("create", "write"):
                fresh.pop()
                files[new] = word if kind == "write" else ""
                calls = (call("touch", new), call("echo", word, new)) if kind == "write" else (call("touch", new),)
                yield Turn(kind, {"file": new, "word": word}, calls)
            elif kind == "replace":
                files[file] = word
                yield Turn(kind, {"file": file, "word": word}, (call("echo", word, file),))
            elif kind == "read":
                if files[file]:
                    yield Turn(kind, {"file": file}, (call("cat", file),))
            elif kind in ("copy", "move"):
                if file not in copied:
                    copied.add(file)
                    action = "cp" if kind == "copy" else "mv"
                    yield Turn(kind, {"file": file, "folder": folder}, (call(action, file, folder),))
                    if kind == "move":
                        del files[file]
            elif kind == "rename":
                fresh.pop()
                files[new] = files.pop(file)
                yield Turn(kind, {"file": file, "new": new}, (call("mv", file, new),))
            elif kind == "collect":
                if folders:
                    target = folders.pop()
                    del files[file]
                    yield Turn(
                        kind, {"file": file, "folder": target}, (call("mkdir", target), call("mv", file, target))
                    )
            else:
                del files[file]
                yield Turn(kind, {"file": file}, (call("rm", file),))

    return config, turns()


def vehicle(rng: np.random.Generator) -> tuple[dict[str, Any], Turns]:
    doors = ACTIONS["lockDoors"][1].choices["all"]
    config = {
        "fuelLevel": float(rng.integers(5, 20)),
        "doorStatus": {door: pick(rng, ["locked", "unlocked"]) for door in doors},
    }

    def turns() -> Turns:
        started = False
        while True:
            kind = pick(rng, ["fuel", "lights", "navigate", "climate", "park", "start"])
            if kind == "fuel":
                number = int(rng.integers(1, 8))
                yield Turn(kind, {"number": number}, (call("fillFuelTank", number),))
            elif kind == "lights":
                mode = pick(rng, ["on", "off"])
                yield Turn(kind, {"mode": mode}, (call("setHeadlights", mode),))
            elif kind == "navigate":
                place = pick(rng, PLACES)
                yield Turn(kind, {"place": place}, (call("set_navigation", place),))
            elif kind == "climate":
                number = int(rng.integers(16, 29))
                yield Turn(kind, {"number": number}, (call("adjustClimateControl", number),))
            elif kind == "park":
                mode = pick(rng, ["engage", "release"])
                yield Turn(kind, {"mode": mode}, (call("activateParkingBrake", mode),))
            elif not started:
                started = True
                steps = (call("lockDoors", False, doors), call("pressBrakePedal", 1), call("startEngine", "START"))
                yield Turn(kind, {}, steps)

    return config, turns()


def tickets(rng: np.random.Generator) -> tuple[dict[str, Any], Turns]:
    first = int(rng.integers(1, 80))
    queue = [
        {
            "id": first + index,
            "title": pick(rng, WORDS),
            "description": "",
            "status": "Open",
            "priority": int(rng.integers(1, 6)),
            "created_by": pick(rng, NAMES),
        }
        for index in range(2)
    ]
    config = {"ticket_queue": queue, "ticket_counter": first + 2, "current_user": None}

    def turns() -> Turns:
        number, open_ids, new = first + 2, [first, first + 1], None
        name, word = pick(rng, NAMES), pick(rng, WORDS)
        yield Turn("ticket_login", {"name": name, "word": word}, (call("ticket_login", name, word),))
        while True:
            kind = pick(
                rng, ["open", "show", "close"] if new is None else ["resolve_new", "resolve_new", "show", "close"]
            )
            word, priority = pick(rng, WORDS), int(rng.integers(1, 6))
            if kind == "open":
                new, number = number, number + 1
                yield Turn(kind, {"word": word, "number": priority}, (call("create_ticket", word, priority),))
            elif kind == "resolve_new":
                yield Turn(kind, {"word": word}, (call("resolve_ticket", new, word),))
                new = None
            elif open_ids:
                chosen = pick(rng, open_ids)
                yield Turn(kind, {"number": chosen}, (call(f"{'get' if kind == 'show' else 'close'}_ticket", chosen),))
                if kind == "close":
                    open_ids.remove(chosen)

    return config, turns()


def messages(rng: np.random.Generator) -> tuple[dict[str, Any], Turns]:
    names, ids = sample(rng, NAMES, 6), sample(rng, USER_IDS[:12], 5)
    users = dict(zip(names[:5], ids, strict=True))
    config = {"user_count": 15, "user_map": users, "inbox": [], "message_count": 0, "current_user": ids[0]}

    def turns() -> Turns:
        strangers, sent = names[5:], []
        while True:
            kind = pick(rng, ["send", "send", "unsend", "contact"])
            name, word = pick(rng, names[1:5]), pick(rng, WORDS)
            if kind == "send":
                sent.append(name)
                steps = (call("get_user_id", name), call("send_message", users[name], word))
                yield Turn(kind, {"name": name, "word": word}, steps)
            elif kind == "unsend" and sent:
                name = sent.pop()
                steps = (call("get_user_id", name), call("delete_message", users[name]))
                yield Turn(kind, {"name": name}, steps)
            elif kind == "contact" and strangers:
                name = strangers.pop()
                yield Turn(kind, {"name": name}, (call("add_contact", name),))

    return config, turns()


def trading(rng: np.random.Generator) -> tuple[dict[str, Any], Turns]:
    symbols = sample(rng, SYMBOLS, 4)
    prices = {symbol: int(rng.integers(10, 100)) for symbol in symbols}
    first, watched = int(rng.integers(10, 80)), symbols[:1]
    config = {
        "orders": {},
        "account_info": {"account_id": 1, "balance": 9000.0, "binding_card": 1},
        "authenticated": True,
        "market_status": "Open",
        "order_counter": first,
        "stocks": {
            s: {"price": p, "percent_change": 0, "volume": 1, "MA(5)": p, "MA(20)": p} for s, p in prices.items()
        },
        "watch_list": list(watched),
        "transaction_history": [],
    }

    def turns() -> Turns:
        number, last = first, None
        while True:
            kind = pick(rng, ["order", "watch", "unwatch"] if last is None else ["order", "cancel", "cancel", "watch"])
            symbol = pick(rng, symbols)
            if kind == "order":
                side, amount = pick(rng, ["Buy", "Sell"]), int(rng.integers(1, 10))
                steps = (call("get_stock_info", symbol), call("place_order", side, symbol, prices[symbol], amount))
                last, number = number, number + 1
                yield Turn(kind, {"side": side, "number": amount, "symbol": symbol}, steps)
            elif kind == "cancel":
                yield Turn(kind, {}, (call("cancel_order", last),))
                last = None
            elif kind == "watch" and symbol not in watched:
                watched.append(symbol)
                yield Turn(kind, {"symbol": symbol}, (call("add_to_watchlist", symbol),))
            elif kind == "unwatch" and symbol in watched:
                watched.remove(symbol)
                yield Turn(kind, {"symbol": symbol}, (call("remove_stock_from_watchlist", symbol),))

    return config, turns()


def posts(rng: np.random.Generator) -> tuple[dict[str, Any], Turns]:
    names, word, first = sample(rng, NAMES, 5), pick(rng, WORDS), int(rng.integers(2, 80))
    known = {
        str(number): {"id": number, "username": names[1], "content": pick(rng, WORDS), "tags": [], "mentions": []}
        for number in (first - 1, first)
    }
    config = {"username": names[0], "password": word, "tweets": known, "tweet_counter": first + 1, "following_list": []}

    def turns() -> Turns:
        number, new, others, old = first + 1, None, names[1:], [first - 1, first]
        yield Turn("post_login", {"name": names[0], "word": word}, (call("authenticate_twitter", names[0], word),))
        while True:
            kind = pick(
                rng, ["post", "post", "follow", "repost"] if new is None else ["comment_new", "comment_new", "follow"]
            )
            text = pick(rng, WORDS)
            if kind == "post":
                new, number = number, number + 1
                yield Turn(kind, {"word": text}, (call("post_tweet", text),))
            elif kind == "comment_new":
                yield Turn(kind, {"word": text}, (call("comment", new, text),))
                new = None
            elif kind == "follow" and others:
                name = others.pop()
                yield Turn(kind, {"name": name}, (call("follow_user", name),))
            elif kind == "repost" and old:
                chosen = old.pop()
                yield Turn(kind, {"number": chosen}, (call("retweet", chosen),))

    return config, turns()


DOMAINS: Mapping[str, tuple[str, Callable[[np.random.Generator], tuple[dict[str, Any], Turns]]]] = {
    "files": ("GorillaFileSystem", file_system),
    "vehicle": ("VehicleControlAPI", vehicle),
    "tickets": ("TicketAPI", tickets),
    "messages": ("MessageAPI", messages),
    "trading": ("TradingBot", trading),
    "posts": ("TwitterAPI", posts),
}
"""Domain -> API class and generator of its initial state and turns."""
