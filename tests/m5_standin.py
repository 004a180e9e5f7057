"""Stands in for UIFlow2's module ``M5`` under MicroPython: somebody touches the screen once and says one sentence.

What the robot shows and plays is printed, a line of JSON each.
"""

import json

LOUD, QUIET = b"\x00\x10" * 1600, b"\x00\x00" * 1600
HEARD = [QUIET, QUIET, LOUD, LOUD, LOUD, LOUD] + [QUIET] * 9


def told(**what):
    print(json.dumps(what))  # noqa: T201  what a test reads


class _Lcd:
    def __init__(self):
        self._words = []

    def fillScreen(self, color):
        if self._words:
            told(shown="".join(self._words))
        self._words = []

    def drawString(self, text, x, y):
        assert 0 <= x < 320
        assert 0 <= y < 240
        self._words.append(text)

    def __getattr__(self, name):
        return lambda *_: None


class _Mic:
    def __init__(self):
        self._queue = []
        self._at = 0

    def begin(self):
        assert not Speaker.runs, "microphone and speaker share one bus"

    def record(self, buffer, rate, stereo):
        assert (len(buffer), rate, stereo) == (3200, 16000, False)
        assert len(self._queue) < 2
        self._queue.append(buffer)

    def isRecording(self):
        now = len(self._queue)
        if now:
            self._queue.pop(0)[:] = HEARD[min(self._at, len(HEARD) - 1)]
            self._at += 1
        return now

    def end(self):
        self._queue = []


class _Speaker:
    runs = False

    def begin(self):
        self.runs = True

    def end(self):
        self.runs = False

    def setVolumePercentage(self, percentage):
        assert 0 <= percentage <= 100

    def playWavFile(self, path):
        assert self.runs
        with open(path, "rb") as file:
            told(played=file.read(28)[20:].hex(), size=file.seek(0, 2))

    def isPlaying(self):
        return False


class _Touch:
    touches = 1

    def getCount(self):
        if not self.touches:
            Lcd.fillScreen(0)  # tells what is shown at last
            raise SystemExit
        self.touches -= 1
        return 1


class Widgets:
    class FONTS:
        EFontJA24 = 0


def begin():
    pass


def update():
    pass


Lcd, Mic, Speaker, Touch = _Lcd(), _Mic(), _Speaker(), _Touch()
