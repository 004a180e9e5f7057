"""What the model, or a person, asks of a search: read from whatever was sent, and widened by other names."""

from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

from stackmem.answers import TYPES
from stackmem.clock import read_time
from stackmem.exceptions import InvalidInput
from stackmem.naming import widen, widened_query
from stackmem.ports import IndexFilter
from stackmem.text import clean, entity_key

QUERY_LIMIT = 1000  # characters


@dataclass(frozen=True)
class SearchArguments:
    """The arguments of ``search_memory``, read from whatever the model sent."""

    query: str
    where: IndexFilter
    exact: bool = False

    @property
    def dated(self) -> bool:
        """Whether a date range was given."""
        return self.where.since is not None or self.where.until is not None


def _text_list(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidInput("entities is a list of names.")
    return [clean(item) for item in value if item.strip()]


def read_arguments(owner: str, given: dict[str, Any], zone: tzinfo) -> SearchArguments:
    """Read the arguments of ``search_memory``. Raises InvalidInput with a sentence that the model can act on."""
    query = given.get("query")
    if not isinstance(query, str) or not query.strip():
        raise InvalidInput("query is missing: say in a short sentence what to look for.")
    memory_type = given.get("memory_type") or None
    if memory_type is not None and memory_type not in TYPES:
        raise InvalidInput(f"memory_type is one of {', '.join(TYPES)}, or left out.")
    since, until = given.get("since") or None, given.get("until") or None
    keys = list(dict.fromkeys(key for key in map(entity_key, _text_list(given.get("entities"))) if key))
    where = IndexFilter(
        owner,
        memory_type=memory_type,
        entity_keys=tuple(keys),
        since=read_time(since, zone) if since else None,
        until=read_time(until, zone, end_of_day=True) if until else None,
    )
    return SearchArguments(clean(query)[:QUERY_LIMIT], where, exact=given.get("exact") is True)


def widened(arguments: SearchArguments) -> SearchArguments:
    """Return the arguments with the other names of what they name."""
    owner, keys = arguments.where.owner, arguments.where.entity_keys
    more = (*keys, *widen(owner, keys)) if keys else ()
    query = widened_query(owner, arguments.query)
    return replace(arguments, query=query, where=replace(arguments.where, entity_keys=more))
