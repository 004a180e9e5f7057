"""Talk to stackmem from MicroPython: everything but the screen, the microphone and the speaker, which are handed in.

HTTP/1.0 over a plain socket, since the `requests` of the firmwares differ in what this needs: `json=` announces the
number of characters instead of bytes (which cuts Japanese off), and a file cannot be sent as it is read.
"""

import binascii
import gc
import json
import os
import socket
import time

RATE = 16000  # samples a second that are recorded and played, 16 bits, one channel
PIECE = 2048  # bytes of sound in memory at once while it is sent or fetched
ANSWER_LIMIT = 16384  # bytes of an answer that is no sound
TRIES = 4
POLL_MS = 400
POLLS_FOR_MS = 60000

UNREACHABLE = "サーバーにつながらないよ。Wi-Fiとアドレスをたしかめてね。"
LATE = "返事が来なかったよ。もう一度話しかけてね。"
UNREADABLE = "サーバーの返事が読めないよ。アドレスをたしかめてね。"
NO_MEMORY = "メモリーが足りなくなったよ。短く話してみてね。"
NO_FILE = "ファイルを読み書きできないよ。"
NOT_HEARD = "よく聞こえなかったよ。もう一度言ってね。"
BY_STATUS = {
    400: "送ったものが読めなかったみたい。",
    401: "トークンがちがうよ。stackmem devices addで作ったものを入れてね。",
    404: "そのアドレスには何もないよ。",
    408: LATE,
    409: LATE,
    413: "録音が長すぎたよ。短く話してみてね。",
    415: "サーバーが読めない形の音だったよ。",
    429: "話しかけすぎみたい。少し待ってね。",
    500: "サーバーの中で何かがうまくいかなかったよ。",
    501: "サーバーに音声認識が設定されていないよ。",
    502: "サーバーの音声認識がうまく動いていないよ。",
    503: "サーバーの準備がまだみたい。少し待ってね。",
}
AGAIN = (408, 409, 429, 502, 503)  # the same request may work a little later


class Trouble(Exception):
    """Something went wrong: `words` are for the screen, `detail` is the server's own sentence."""

    def __init__(self, words, detail="", again=False):
        super().__init__(words)
        self.words = words
        self.detail = detail
        self.again = again


class Client:
    """One robot's connection to its memory. Every request is repeated until it is answered or hopeless.

    A turn carries an id of its own, so that one sent twice is answered once.
    """

    def __init__(self, url, token="", session_id="", timeout_s=20, polls=False, pause_ms=1000):
        if not url.startswith("http://"):
            raise ValueError("the address begins with http://")
        host, _, port = url[7:].split("/")[0].partition(":")
        self._host, self._port = host, int(port or 80)
        self._token, self._session_id = token, session_id
        self._timeout_s, self._polls, self._pause_ms = timeout_s, polls, pause_ms

    def persona(self):
        """Return the robot's name and the ids its body must know."""
        return self._again(lambda: self._ask("GET", "/v1/persona"))

    def say(self, text, turn_id=""):
        """Return the answer to words."""
        asked = {"text": text, "client_turn_id": turn_id or new_id()}
        if self._session_id:
            asked["session_id"] = self._session_id
        body = json.dumps(asked).encode()
        return self._turn("", "application/json", lambda sock: sock.write(body), len(body))

    def hear(self, path, turn_id=""):
        """Return the answer to a recording, a WAV file; with `"silence": true` where nobody spoke."""
        query = "client_turn_id=" + (turn_id or new_id())
        if self._session_id:
            query += "&session_id=" + quoted(self._session_id)
        with opened(path, "rb") as file:
            length = file.seek(0, 2)
        return self._turn(query, "audio/wav", lambda sock: copy_file(path, sock), length)

    def fetch(self, url, path):
        """Write the speech at a relative address to a WAV file; return its length in bytes."""
        url += "&" if "?" in url else "?"
        return self._again(lambda: self._ask("GET", url + "rate=%d&format=wav" % RATE, into=path))

    def _turn(self, query, kind, write, length):
        path = "/v1/turns?" + ("wait=0&" if self._polls else "") + query
        answer = self._again(lambda: self._ask("POST", path, kind, write, length))
        if isinstance(answer.get("job_id"), int) and "state" not in answer:
            return self._polled("/v1/jobs/%d" % answer["job_id"])
        return checked(answer)

    def _polled(self, path):
        began = time.ticks_ms()
        while time.ticks_diff(time.ticks_ms(), began) < POLLS_FOR_MS:
            job = self._again(lambda: self._ask("GET", path))
            if job.get("state") == "done":
                return checked(job)
            if job.get("state") == "failed":
                raise Trouble(LATE, str(job.get("detail")))
            time.sleep_ms(POLL_MS)
        raise Trouble(LATE)

    def _again(self, ask):
        """Return what `ask` returns; after a failure that may pass, ask again, 1, 2 and 4 pauses later."""
        for number in range(TRIES):
            try:
                return ask()
            except OSError as exc:
                trouble = Trouble(LATE if is_late(exc) else UNREACHABLE, str(exc), True)
            except Trouble as exc:
                trouble = exc
            if not trouble.again or number == TRIES - 1:
                break
            gc.collect()
            time.sleep_ms(self._pause_ms << number)
        raise trouble

    def _ask(self, method, path, kind="", write=None, length=0, into=""):
        """Send one request; return the JSON of its answer, or with `into` the bytes written there."""
        info = socket.getaddrinfo(self._host, self._port, 0, socket.SOCK_STREAM)[0]
        sock = socket.socket(info[0], socket.SOCK_STREAM)
        try:
            sock.settimeout(self._timeout_s)
            sock.connect(info[-1])
            head = "%s %s HTTP/1.0\r\nHost: %s:%d\r\nConnection: close\r\n" % (method, path, self._host, self._port)
            if self._token:
                head += "Authorization: Bearer %s\r\n" % self._token
            if write:
                head += "Content-Type: %s\r\nContent-Length: %d\r\n" % (kind, length)
            sock.write((head + "\r\n").encode())
            if write:
                write(sock)
            return read_answer(sock, into)
        finally:
            sock.close()


def checked(answer):
    """Return the answer to a turn; another program at this address may say anything."""
    for name in ("reply", "emotion", "action", "audio_url"):
        if name not in answer:
            raise Trouble(UNREADABLE, "no " + name)
    return answer


def read_answer(sock, into=""):
    """Return the JSON of an answer, or write its sound to a file and return the number of bytes."""
    status, length = read_head(sock)
    if status == 200 and into:
        return copy_sound(sock, length, into)
    if length > ANSWER_LIMIT:
        raise Trouble(UNREADABLE, "%d bytes" % length)
    body = bytearray(length)
    read_all(sock, body)
    try:
        value = json.loads(bytes(body))
    except ValueError:
        value = None
    if status in (200, 202) and isinstance(value, dict):
        return value
    detail = value.get("detail", "") if isinstance(value, dict) else ""
    raise Trouble(BY_STATUS.get(status, UNREADABLE), detail, status in AGAIN)


def read_head(sock):
    """Return status and length of an answer."""
    line = sock.readline()
    if not line:
        raise OSError("the connection was closed")
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise Trouble(UNREADABLE, str(line[:40]))
    length = -1
    while True:
        line = sock.readline()
        if line in (b"", b"\r\n", b"\n"):
            break
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
    if length < 0:
        raise Trouble(UNREADABLE, "no Content-Length")
    return int(words[1]), length


def read_all(sock, buffer):
    """Fill the buffer from the socket."""
    view, filled = memoryview(buffer), 0
    while filled < len(buffer):
        got = sock.readinto(view[filled:])
        if not got:
            raise OSError("the answer ends in the middle")
        filled += got


def opened(path, mode):
    """Return an open file."""
    try:
        return open(path, mode)
    except OSError as exc:
        raise Trouble(NO_FILE, path + ": " + str(exc))


def copy_sound(sock, length, path):
    """Write so many bytes of the socket to a file, a piece at a time; return how many."""
    view, left = memoryview(bytearray(PIECE)), length
    with opened(path, "wb") as out:
        while left:
            piece = view[: min(PIECE, left)]
            read_all(sock, piece)
            if left == length and bytes(piece[:4]) != b"RIFF":  # the login page of a Wi-Fi, for one
                raise Trouble(UNREADABLE, "no sound")
            try:
                out.write(piece)
            except OSError as exc:  # such as a full disk; one of the socket would be tried again
                raise Trouble(NO_FILE, str(exc))
            left -= len(piece)
    return length


def copy_file(path, sock):
    """Write a file to the socket, a piece at a time."""
    buffer = bytearray(PIECE)
    view = memoryview(buffer)
    with opened(path, "rb") as file:
        while True:
            got = file.readinto(buffer)
            if not got:
                return
            sock.write(view[:got])


def is_late(exc):
    """Tell whether an OSError is a time-out: EAGAIN, ETIMEDOUT on Linux, ETIMEDOUT on the ESP32."""
    return exc.args and exc.args[0] in (11, 110, 116)


def new_id():
    """Return an id that no other turn has, also after a restart."""
    return binascii.hexlify(os.urandom(8)).decode()


def quoted(text):
    """Return a text as it may stand in an address."""
    return "".join(chr(b) if 47 < b < 58 or 64 < b < 91 or 96 < b < 123 else "%%%02X" % b for b in text.encode())


def lines(text, wide):
    """Return a text in lines of at most so many wide characters; two narrow ones (ASCII) take the place of one."""
    found, line, used = [], "", 0
    for char in text:
        width = 1 if ord(char) < 128 else 2
        if char == "\n" or used + width > 2 * wide:
            found.append(line)
            line, used = "", 0
        if char != "\n":
            line += char
            used += width
    return found + [line] if line else found


class Recorder:
    """Writes what a microphone hears to a WAV file, until it is quiet again.

    `mic` has `start()`, `read()`, which returns the next piece of sound (16 bits, 16 kHz, one channel), and `stop()`.
    """

    def __init__(self, mic, loud=700, quiet_ms=900, longest_ms=15000):
        self._mic, self._loud = mic, loud
        self._quiet_ms, self._longest_ms = quiet_ms, longest_ms

    def record(self, path, wait_ms=5000):
        """Record one utterance. Return whether somebody spoke; a recording of nothing but silence is not kept.

        `wait_ms`: how long it may take until somebody begins.
        """
        self._mic.start()
        try:
            with open(path, "wb") as out:
                out.write(wav_head(0))
                size = self._write(out, wait_ms)
                out.seek(0)
                out.write(wav_head(size))
        finally:
            self._mic.stop()
        return size > 0

    def _write(self, out, wait_ms):
        before, size, passed_ms, quiet_ms = b"", 0, 0, 0
        while passed_ms < self._longest_ms and quiet_ms < self._quiet_ms:
            piece = self._mic.read()
            piece_ms = len(piece) * 500 // RATE
            is_loud = loudness(piece) >= self._loud
            if size == 0 and not is_loud:  # nobody has begun
                before, wait_ms = bytes(piece), wait_ms - piece_ms
                if wait_ms <= 0:
                    return 0
                continue
            if size == 0:
                size = out.write(before)  # the beginning of a word is not loud yet
            size += out.write(piece)
            passed_ms += piece_ms
            quiet_ms = 0 if is_loud else quiet_ms + piece_ms
        return size


def loudness(piece):
    """Return how loud a piece is: the mean of every fourth sample's size, 0 to 32768."""
    total, count = 0, 0
    for at in range(0, len(piece) - 1, 8):
        value = piece[at] | piece[at + 1] << 8
        total += 65536 - value if value > 32767 else value
        count += 1
    return total // count if count else 0


def wav_head(size):
    """Return the 44 bytes before `size` bytes of sound in a WAV file."""

    def number(value, length):
        return value.to_bytes(length, "little")

    return (
        b"RIFF" + number(size + 36, 4) + b"WAVEfmt " + number(16, 4) + number(1, 2) + number(1, 2)
        + number(RATE, 4) + number(RATE * 2, 4) + number(2, 2) + number(16, 2) + b"data" + number(size, 4)
    )  # fmt: skip


class Robot:
    """A conversation: it listens, asks its memory, shows a face, speaks.

    `face` has `show(emotion, words)` and `move(action)`; `voice` has `play(path)`, which returns when all is said.
    """

    def __init__(self, client, recorder, face, voice, folder="/flash"):
        self._client, self._recorder, self._face, self._voice = client, recorder, face, voice
        self._heard, self._speech = folder + "/heard.wav", folder + "/speech.wav"

    def talk(self, wait_ms=5000):
        """Have one exchange; return the answer, None where there was none: then the face says why."""
        try:
            return self._talk(wait_ms)
        except Trouble as trouble:
            print("stackmem:", trouble.words, trouble.detail)
            self._face.show("sad", trouble.words)
        except MemoryError:
            self._face.show("sad", NO_MEMORY)
        except OSError as exc:  # of a file; those of the network are troubles already
            print("stackmem:", exc)
            self._face.show("sad", NO_FILE)
        finally:
            for path in (self._heard, self._speech):
                try:
                    os.remove(path)
                except OSError:
                    pass
            gc.collect()
        return None

    def _talk(self, wait_ms):
        self._face.show("neutral", "きいているよ…")
        if not self._recorder.record(self._heard, wait_ms):
            self._face.show("neutral", "")
            return None
        self._face.show("neutral", "かんがえているよ…")
        answer = self._client.hear(self._heard)
        if answer.get("silence"):
            self._face.show("doubt", NOT_HEARD)
            return None
        self._face.show(answer["emotion"], answer["reply"])
        self._face.move(answer["action"])
        if answer["audio_url"]:
            self._speak(answer["audio_url"])
        return answer

    def _speak(self, url):
        try:
            self._client.fetch(url, self._speech)
        except Trouble as trouble:  # the words stand on the screen
            print("stackmem:", trouble.words, trouble.detail)
            return
        self._voice.play(self._speech)
