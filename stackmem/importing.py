"""Read JSON lines of utterances, or of an export, into sessions and turns. The same file twice adds nothing."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from stackmem import sessions
from stackmem.appending import StoredLog, grow, rest, session_of_part
from stackmem.database import transaction
from stackmem.exceptions import InvalidInput
from stackmem.models import Owner, Session, Turn
from stackmem.refusing import Refused
from stackmem.restoring import Restore
from stackmem.turn_rows import insert_turns
from stackmem.utterances import Exchange, Utterance, pair_up, read_utterance, split_by_gap

Talks = dict[str, list[Utterance]]


@dataclass
class Imported:
    """What an import did: turns that are new, or were there already, lines skipped, sessions touched."""

    turns: int = 0
    known: int = 0
    memories: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)
    session_ids: list[int] = field(default_factory=list)
    refused: Refused = field(default_factory=Refused, compare=False)


@dataclass(frozen=True)
class Importer:
    """Imports lines for one owner."""

    owner: str
    zone: tzinfo
    now: datetime
    both_speakers: bool = False

    def run(self, lines: Iterable[bytes]) -> Imported:
        """Import every valid line, all in one transaction; the others are named in ``faults`` with their number.

        What another owner of the store has, or a person forgot here, is left out: ``faults`` says so once a kind,
        with the number of the first line.
        """
        result = Imported()
        talks, restore = self._read(lines, result)
        with transaction():
            restore.finish(result)
            for name, talk in talks.items():
                stored = StoredLog(self.owner, name)
                for part, utterances in enumerate(split_by_gap(talk), 1):
                    self._append(stored, part, utterances, result)
        result.faults = sorted(result.faults + result.refused.faults(), key=lambda fault: fault["line"])
        return result

    def _read(self, lines: Iterable[bytes], result: Imported) -> tuple[Talks, Restore]:
        talks: Talks = {}
        restore = Restore(self.owner, self.zone, self.now)
        for number, line in enumerate(lines, 1):
            try:
                value = _read_line(line, first=number == 1)
                if value is None:
                    continue
                if "kind" in value:
                    restore.take(value, number)
                else:
                    utterance = read_utterance(value, self.zone, number)
                    talks.setdefault(utterance.session, []).append(utterance)
            except InvalidInput as exc:
                result.faults.append({"line": number, "reason": str(exc)})
            except RecursionError:
                result.faults.append({"line": number, "reason": "The line is nested too deeply."})
        return talks, restore

    def _append(self, stored: StoredLog, part: int, utterances: Sequence[Utterance], result: Imported) -> None:
        """Insert the turns of one part of a log that are not there yet, and lengthen the one it broke off in."""
        pairs, uids = stored.pairs(part, pair_up(utterances, self.now))
        fresh = [(uid, exchange) for uid, (exchange, row) in zip(uids, pairs, strict=True) if row is None]
        own, touched = list[Turn](), set[int]()
        for exchange, row in pairs:
            if row is not None and row.owner != self.owner:
                result.refused.add("foreign turn", exchange.utterances[0].line)
            elif row is not None:
                own.append(row)
                touched |= {row.session_id} if grow(row, exchange) else set()
                more = rest(row, exchange)
                fresh += [more] if more else []
        if fresh:
            touched.add(self._insert(stored.name, part, utterances[0].at, fresh, own))
        result.known += len(own)
        result.turns += len(fresh)
        result.session_ids += sorted(touched - set(result.session_ids))

    def _insert(
        self, name: str, part: int, began: datetime | None, fresh: Sequence[tuple[str, Exchange]], own: Sequence[Turn]
    ) -> int:
        """Insert new turns after those of their session; return its id."""
        session, key = session_of_part(self.owner, name, part, began, own)
        session = session or self._begin(name, key, fresh[0][1].at)
        ordinal = sessions.next_ordinal(session)
        insert_turns([
            {
                "uid": uid, "session": session, "ordinal": ordinal + step, "owner": self.owner, "at": exchange.at,
                "received_at": self.now, "user": exchange.user, "reply": exchange.reply, "state": "pending",
                "imported": True,
            }
            for step, (uid, exchange) in enumerate(fresh)
        ])  # fmt: skip
        return int(session.id)

    def _begin(self, name: str, key: str, started_at: datetime) -> Session:
        Owner.insert(name=self.owner).on_conflict_ignore().execute()
        return sessions.begin(
            self.owner, name, now=self.now, named=True, imported=key, both_speakers=self.both_speakers,
            started_at=started_at, ended_at=self.now,
        )  # fmt: skip


def _read_line(line: bytes, *, first: bool) -> dict[str, Any] | None:
    try:
        text = line.decode("utf-8-sig" if first else "utf-8").strip()
        value = json.loads(text) if text else None
    except UnicodeDecodeError as exc:
        raise InvalidInput("The line is not valid UTF-8.") from exc
    except ValueError as exc:
        raise InvalidInput("The line is not valid JSON.") from exc
    if value is not None and not isinstance(value, dict):
        raise InvalidInput("The line is not a JSON object.")
    return value
