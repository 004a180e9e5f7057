"""StackChan on an M5Stack CoreS3 with UIFlow2: touch the screen, or just speak, and it answers and remembers.

Copy this file and stackmem_client.py to /flash, fill in the lines below, and start it.
"""

import gc
import time

import M5
from M5 import Lcd, Mic, Speaker, Touch, Widgets
from stackmem_client import RATE, Client, Recorder, Robot, lines

URL = "http://192.168.1.20:8765"  # what `stackmem up --host 0.0.0.0` shows
TOKEN = "sm_..."  # what `stackmem devices add kitchen` shows
WIFI = ("", "")  # network and password, where UIFlow2 has not connected yet
FOLDER = "/flash"  # where recordings and speech lie while they are needed
STARTS_BY_VOICE = False  # True: it listens all the time, without a touch
LOUD = 700  # a voice is louder than this; raise it where noise starts the recording

BLACK, WHITE = 0x000000, 0xFFFFFF
LETTERS = 24  # pixels of a letter
ROWS = 2  # of words under the face


class Face:
    """Two eyes, a mouth and the words. `move` is the body's own affair: put your servos here."""

    def __init__(self):
        Lcd.setFont(Widgets.FONTS.EFontJA24)
        Lcd.setTextColor(WHITE, BLACK)
        self._emotion, self._words = "neutral", ""

    def show(self, emotion, words, up=0, aside=0):
        """Draw the face and the last words that fit."""
        self._emotion, self._words = emotion, words
        Lcd.fillScreen(BLACK)
        for x in (90 + aside, 230 + aside):
            self._eye(x, 80 - up, emotion, -1 if x < 160 else 1)
        open_by = {"happy": 14, "doubt": 4, "angry": 6}.get(emotion, 8)
        Lcd.fillRect(125 + aside, 128 - up, 70, open_by, WHITE)
        for row, line in enumerate(lines(words, 320 // LETTERS)[-ROWS:]):
            Lcd.drawString(line, 4, 240 - (ROWS - row) * (LETTERS + 2))

    def _eye(self, x, y, emotion, side):
        if emotion == "sleepy":
            Lcd.fillRect(x - 14, y, 28, 4, WHITE)
            return
        Lcd.fillCircle(x, y, 5 if emotion == "doubt" and side > 0 else 9, WHITE)
        if emotion == "happy":
            Lcd.fillCircle(x, y + 5, 8, BLACK)
        elif emotion in ("angry", "sad"):
            lean = 6 * side if emotion == "angry" else -6 * side
            Lcd.drawLine(x - 14, y - 16 + lean, x + 14, y - 16 - lean, WHITE)

    def move(self, action):
        """Show an action with the face alone."""
        steps = {
            "nod": ((-12, 0), (0, 0), (-12, 0)),
            "shake": ((0, -14), (0, 14), (0, -14), (0, 14)),
            "look_up": ((20, 0),),
            "look_down": ((-20, 0),),
            "tilt": ((6, 10),),
        }.get(action, ())
        for up, aside in steps:
            self.show(self._emotion, self._words, up, aside)
            time.sleep_ms(180)
        if steps:
            self.show(self._emotion, self._words)


class Microphone:
    """Sound without gaps: while a piece is looked at, the next one is being recorded already."""

    def __init__(self):
        self._pieces = [bytearray(RATE // 5) for _ in range(3)]  # a tenth of a second each
        self._at = 0

    def start(self):
        """Begin; speaker and microphone share one bus."""
        Speaker.end()
        Mic.begin()
        self._at = 0
        Mic.record(self._pieces[0], RATE, False)

    def read(self):
        """Return the piece that was recorded last, when it is whole."""
        ready = self._pieces[self._at]
        self._at = (self._at + 1) % len(self._pieces)
        Mic.record(self._pieces[self._at], RATE, False)
        while Mic.isRecording() > 1:  # 2: one is being recorded, and one waits
            time.sleep_ms(5)
        return ready

    def stop(self):
        """End."""
        Mic.end()


class Voice:
    """The speaker."""

    def play(self, path):
        """Play a WAV file to its end."""
        Speaker.begin()
        Speaker.setVolumePercentage(70)
        Speaker.playWavFile(path)
        while Speaker.isPlaying():
            time.sleep_ms(20)
        Speaker.end()


def connect(face):
    """Join the Wi-Fi, unless UIFlow2 has done so."""
    import network

    wlan = network.WLAN(network.STA_IF)
    if wlan.isconnected() or not WIFI[0]:
        return
    face.show("sleepy", "Wi-Fiにつないでいるよ…")
    wlan.active(True)
    wlan.connect(*WIFI)
    while not wlan.isconnected():
        time.sleep_ms(200)


def is_touched():
    """Tell whether somebody touches the screen."""
    M5.update()
    return Touch.getCount() > 0


def run():
    """Talk for ever."""
    M5.begin()
    gc.collect()
    face = Face()
    connect(face)
    robot = Robot(Client(URL, TOKEN), Recorder(Microphone(), LOUD), face, Voice(), FOLDER)
    face.show("neutral", "話しかけてね" if STARTS_BY_VOICE else "さわって話してね")
    while True:
        if STARTS_BY_VOICE or is_touched():
            robot.talk()
        time.sleep_ms(20)


if __name__ == "__main__":
    run()
