"""The one table of configuration keys: what files and options may say, what DescribeConfigs answers, what the
docs list.

The rows are written down by subject in `topic_keys`, `broker_keys`, `group_keys` and `inert_keys`; everyone
else uses the maps here. A name can stand in several scopes (`min.insync.replicas` is a topic key and the
broker's default for it).
"""

from __future__ import annotations

from moldau.config.broker_keys import BROKER_KEY_GROUPS
from moldau.config.group_keys import CLIENT_METRICS_KEYS_IN_ORDER, GROUP_BROKER_KEYS, GROUP_KEYS_IN_ORDER
from moldau.config.inert_keys import inert_keys
from moldau.config.key import ConfigError, Key
from moldau.config.listener_settings import MECHANISMS, split
from moldau.config.listener_settings import PREFIX as LISTENER_PREFIX
from moldau.config.spelling import meant
from moldau.config.topic_keys import TOPIC_KEYS_IN_ORDER

BROKER_KEYS: dict[str, Key] = {key.name: key for _, keys in BROKER_KEY_GROUPS for key in keys}
BROKER_KEYS |= {key.name: key for key in GROUP_BROKER_KEYS}
TOPIC_KEYS: dict[str, Key] = {key.name: key for key in TOPIC_KEYS_IN_ORDER}
GROUP_KEYS: dict[str, Key] = {key.name: key for key in GROUP_KEYS_IN_ORDER}
CLIENT_METRICS_KEYS: dict[str, Key] = {key.name: key for key in CLIENT_METRICS_KEYS_IN_ORDER}

#: Every key that Moldau knows by meaning.
KEYS: tuple[Key, ...] = (
    *BROKER_KEYS.values(),
    *TOPIC_KEYS.values(),
    *GROUP_KEYS.values(),
    *CLIENT_METRICS_KEYS.values(),
)

OWN = "moldau."
"""What the names of Moldau's own keys begin with."""


def broker_key(name: str) -> Key | None:
    """The broker key of that name, Kafka's inert ones included; None where nobody knows it."""
    key = _unprefixed(name)
    if key is None and (part := split(name)) is not None and (inner := _unprefixed(part.key)) is not None:
        return inner._replace(name=name)
    return key


def _unprefixed(name: str) -> Key | None:
    return BROKER_KEYS.get(name) or inert_keys().get(name)


def unknown_broker_key(name: str) -> ConfigError:
    """Why a name is refused, with the name that was probably meant."""
    lower = name.lower()
    if (topic_key := TOPIC_KEYS.get(lower)) is not None:
        hint = (
            f"it is a topic key; the broker's default for it is '{topic_key.synonyms[0]}'"
            if topic_key.synonyms
            else ""
        )
        return ConfigError(f"unknown broker key '{name}': {hint or 'it can only be set on a topic'}")
    from difflib import get_close_matches

    names = [*BROKER_KEYS, *inert_keys()]
    guess = OWN + lower if OWN + lower in BROKER_KEYS else listener_key_meant(lower) or meant(name, names)
    guess = guess or next(iter(get_close_matches(lower, names, n=1, cutoff=0.75)), None)
    return ConfigError(f"unknown broker key '{name}'" + (f": did you mean '{guess}'?" if guess else ""))


def listener_key_meant(lower: str) -> str | None:
    """The listener's setting of which this name, in lower case, is a misspelling."""
    if not lower.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = lower[len(LISTENER_PREFIX) :].partition(".")
    mechanism, _, key = rest.partition(".")
    front, rest = (f"{mechanism}.", key) if mechanism in MECHANISMS else ("", rest)
    names = {*BROKER_KEYS, *inert_keys()}
    inner = rest if rest in names else meant(rest, sorted(names))
    whole = f"{LISTENER_PREFIX}{listener}.{front}{inner}"
    return whole if inner and broker_key(whole) is not None else None
