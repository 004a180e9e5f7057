"""The built-in Japanese set: invented memories of one family, each near to others, and questions with one answer."""

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Sample:
    """Texts of memories, questions, and for each question the place of the memory that answers it."""

    summaries: tuple[str, ...]
    questions: tuple[str, ...]
    answers: tuple[int, ...]


def japanese() -> Sample:
    """Return 40 memories, as they are embedded (topic, line break, summary), and 60 questions."""
    memories = json.loads(files(__package__).joinpath("japanese.json").read_text("utf-8"))
    asked = [(question, place) for place, memory in enumerate(memories) for question in memory["questions"]]
    return Sample(
        tuple(f"{memory['topic']}\n{memory['summary']}" for memory in memories),
        tuple(question for question, _ in asked),
        tuple(place for _, place in asked),
    )
