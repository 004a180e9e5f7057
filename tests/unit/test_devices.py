"""Robots and clients on the LAN: a token each, shown once, stored as a hash."""

from typing import Any

import pytest

from stackmem import devices
from stackmem.exceptions import InvalidInput, NotFound
from stackmem.models import Device
from tests.fakes import FixedClock


def test_a_token_finds_its_device_and_owner(database: Any, clock: FixedClock) -> None:
    assert not devices.any_added()
    token = devices.add(" 居間のロボット ", "mari", clock.now())
    found = devices.find(token)
    assert found is not None
    assert (found.name, found.owner, found.created_at) == ("居間のロボット", "mari", clock.now())
    assert devices.any_added()


def test_the_token_is_kept_nowhere(database: Any, clock: FixedClock) -> None:
    token = devices.add("robot", "home", clock.now())
    assert token.startswith("sm_")
    assert len(token) > 40
    assert all(token not in str(value) for value in Device.select().tuples().get())
    assert devices.add("other", "home", clock.now()) != token


@pytest.mark.parametrize("token", ["", "sm_", "x" * 10_000, "\ud800", "日本語"])
def test_a_wrong_token_finds_nothing(database: Any, clock: FixedClock, token: str) -> None:
    devices.add("robot", "home", clock.now())
    assert devices.find(token) is None


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\nb", "a\x00", "a\ud800"])
def test_a_name_has_1_to_100_printable_characters(database: Any, clock: FixedClock, name: str) -> None:
    with pytest.raises(InvalidInput, match="1 to 100 printable characters"):
        devices.add(name, "home", clock.now())


def test_a_name_is_given_once(database: Any, clock: FixedClock) -> None:
    devices.add("robot", "home", clock.now())
    with pytest.raises(InvalidInput, match="There is a device 'robot' already"):
        devices.add("robot", "mari", clock.now())


def test_a_revoked_token_is_worth_nothing(database: Any, clock: FixedClock) -> None:
    token, other = devices.add("robot", "home", clock.now()), devices.add("other", "home", clock.now())
    devices.revoke("robot")
    assert devices.find(token) is None
    assert devices.find(other) is not None
    with pytest.raises(NotFound, match="There is no device 'robot'"):
        devices.revoke("robot")
