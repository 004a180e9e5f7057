"""The circuit: a turn that waited in vain spares the next ones the wait, for seconds, not for good."""

from collections.abc import Callable, Iterator

import pytest

from stackmem.circuit import FIRST_S, LONGEST_S, SLOW_S, Circuit
from stackmem.exceptions import PermanentError, TransientError
from stackmem.ports import ChatAnswer, ChatRequest

REQUEST = ChatRequest([{"role": "user", "content": "こんにちは"}], "turn", 10.0)


class Model:
    """A model that takes so long, then answers or raises; it moves the time itself."""

    name = "slow"

    def __init__(self) -> None:
        self.now_s, self.takes_s, self.asked = 1000.0, 0.0, 0
        self.error: Exception | None = None

    def complete(self, request: ChatRequest) -> ChatAnswer:
        self.asked += 1
        self.now_s += self.takes_s
        if self.error:
            raise self.error
        return ChatAnswer("やあ")

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        yield "や"
        yield self.complete(request)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def circuit(model: Model) -> Circuit:
    return Circuit(model, lambda: model.now_s)


def fails(circuit: Circuit, kind: type[Exception] = TransientError) -> None:
    with pytest.raises(kind):
        circuit.complete(REQUEST)


def test_after_a_slow_failure_the_model_is_left_alone_then_asked_again(model: Model, circuit: Circuit) -> None:
    assert circuit.name == "slow"
    model.takes_s, model.error = 10.0, TransientError("too slow")
    fails(circuit)
    before = model.now_s
    fails(circuit)
    assert (model.asked, model.now_s) == (1, before)  # at once, without asking
    model.now_s += FIRST_S
    model.takes_s, model.error = 0.1, None
    assert circuit.complete(REQUEST).content == "やあ"
    assert circuit.complete(REQUEST).content == "やあ"
    assert model.asked == 3


def test_the_pause_doubles_up_to_a_limit_and_one_success_ends_it(model: Model, circuit: Circuit) -> None:
    model.takes_s, model.error = SLOW_S, TransientError("too slow")
    pauses = []
    for _ in range(6):
        fails(circuit)
        begun = model.now_s
        asked = model.asked
        while True:
            model.now_s += 0.5
            fails(circuit)
            if model.asked > asked:
                break
        pauses.append(round(model.now_s - begun - SLOW_S))
        model.now_s += LONGEST_S + 1
    assert pauses[0] == round(FIRST_S)
    assert pauses == sorted(pauses)
    assert max(pauses) <= LONGEST_S
    model.takes_s, model.error = 0.0, None
    circuit.complete(REQUEST)
    model.takes_s, model.error = SLOW_S, TransientError("too slow")
    fails(circuit)
    model.now_s += FIRST_S
    model.error = None
    assert circuit.complete(REQUEST).content == "やあ"


@pytest.mark.parametrize(
    ("takes_s", "error", "kind"),
    [(0.1, TransientError("refused"), TransientError), (10.0, PermanentError("no balance"), PermanentError)],
)
def test_what_cost_no_wait_or_will_not_change_opens_nothing(
    model: Model, circuit: Circuit, takes_s: float, error: Exception, kind: type[Exception]
) -> None:
    model.takes_s, model.error = takes_s, error
    fails(circuit, kind)
    fails(circuit, kind)
    assert model.asked == 2


_: Callable[[Model], object] = Circuit  # the model stands for the port


def test_a_stream_is_watched_as_a_whole_answer_is(model: Model, circuit: Circuit) -> None:
    assert list(circuit.stream(REQUEST)) == ["や", ChatAnswer("やあ")]
    model.takes_s, model.error = 10.0, TransientError("broke off")
    with pytest.raises(TransientError, match="broke off"):
        list(circuit.stream(REQUEST))
    with pytest.raises(TransientError, match="a moment ago"):
        list(circuit.stream(REQUEST))
    fails(circuit)
    assert model.asked == 2
