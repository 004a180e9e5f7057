"""The server's name on the network, over real multicast on the loopback interface."""

import socket
import threading

import pytest

from tests.running import until

zeroconf = pytest.importorskip("zeroconf", reason="Install the extra [mdns] to run this.")

from web.announcing import KIND, Announcement, can_announce  # noqa: E402

HERE = "127.0.0.1"


def found(name: str) -> tuple[int, str] | None:
    """Return the port and address under which a server is found by its name."""
    with zeroconf.Zeroconf(interfaces=[HERE], ip_version=zeroconf.IPVersion.V4Only) as looking:
        info = looking.get_service_info(KIND, f"{name}.{KIND}", 1500)
        return (info.port, socket.inet_ntoa(info.addresses[0])) if info else None


def started(port: int) -> tuple[Announcement, str]:
    said: list[str] = []
    announcement = Announcement(HERE, port, said.append)
    announcement.start()
    until(lambda: said, "the name is announced")
    return announcement, said[0]


def test_a_server_is_found_by_its_name_and_a_second_one_takes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_announce()
    with monkeypatch.context() as nobody_there:
        nobody_there.setattr("web.announcing.TAKEN_MS", 1)
        first, url = started(8765)
    try:
        assert url == "http://stackmem.local:8765"
        assert found("stackmem") == (8765, HERE)
        second, other = started(8766)
        assert other == "http://stackmem-2.local:8766"
        second.stop()
    finally:
        first.stop()


def test_a_network_that_takes_none_is_logged_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    announcement = Announcement("203.0.113.1", 8765, said.append)  # TEST-NET-3: no interface of this machine
    announcement._run()
    assert said == []
    assert "could not be announced" in caplog.text
    announcement.stop()


def test_a_server_that_stops_at_once_announces_nothing() -> None:
    said: list[str] = []
    announcement = Announcement(HERE, 8765, said.append)
    announcement.stop()
    announcement._run()
    assert said == []
    assert not [thread for thread in threading.enumerate() if thread.name == "mdns"]


def test_no_free_name_leaves_the_number(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("web.announcing.NAMES", ())
    said: list[str] = []
    announcement = Announcement(HERE, 8765, said.append)
    announcement._run()
    announcement.stop()
    assert said == []
    assert "No name is free" in caplog.text
