"""What the terminal says when the server is ready."""

import ipaddress
import os
import shutil
import socket
import sys
from pathlib import Path

from stackmem.bootstrap import Runtime
from stackmem.config import Settings
from stackmem.places import place

Bound = tuple[str, int]  # the address and port that are listened on


def is_loopback(bound: Bound) -> bool:
    """Tell whether only this machine reaches the address."""
    return ipaddress.ip_address(bound[0].partition("%")[0]).is_loopback


def local_url(bound: Bound) -> str:
    """Return how this machine itself reaches the server."""
    address = ipaddress.ip_address(bound[0].partition("%")[0])
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(address), bound[0])
    return _url(host, bound[1])


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def lan_address() -> str | None:
    """Return this machine's address on the LAN; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1, https://www.rfc-editor.org/rfc/rfc5737
        except OSError:
            return None  # no way out of this machine
        return str(probe.getsockname()[0])


def on_the_lan(bound: Bound) -> str | None:
    """Return the address by which others reach a server that is bound to more than loopback, None without one."""
    everywhere = ipaddress.ip_address(bound[0].partition("%")[0]).is_unspecified
    return lan_address() if everywhere else bound[0]


def banner(settings: Settings, runtime: Runtime, bound: Bound, *, insecure: bool) -> str:
    """Return the text: where it listens, what it works with, how to set a model, how the robot reaches it."""
    lines = [
        f"stackmem is ready: {local_url(bound)}",
        f"  store     {place(settings.database)}  (home: {settings.home})",
        f"  index     {_index(settings, runtime)}   embedder  {runtime.index.embedder.fingerprint}",
        f"  workers   in this process ({place(settings.broker_url)})",
        f"  persona   {runtime.persona.name}",
    ]
    if settings.hears:
        lines.append(f"  ears      {settings.asr_model} at {place(settings.asr_base_url)}")
    if settings.speaks:
        lines.append(f"  voice     {settings.tts_model} at {place(settings.tts_base_url)}")
    if runtime.chat.name != "offline":
        lines.append(f"  model     {settings.chat_model} at {settings.chat_base_url}")
    elif settings.chat_base_url and settings.chat_base_url != "offline":
        lines.append("  model     none: STACKMEM_CHAT_BASE_URL is set without STACKMEM_CHAT_MODEL; rules answer.")
    else:
        lines += _NO_MODEL
    return "\n".join([*lines, "", *_reach(bound, insecure), "Ctrl-C stops it; nothing is lost."])


def _index(settings: Settings, runtime: Runtime) -> str:
    where = settings.index_url if settings.index_is_shared else "embedded"
    return f"{runtime.index.kind}, {where}"


_NO_MODEL = [
    "  model     none is set: simple offline rules answer, so everything can be tried.",
    "            To set one, put into .env, for example",
    "              STACKMEM_CHAT_BASE_URL=https://api-inference.modelscope.cn/v1     (ModelScope, with a key)",
    "              STACKMEM_CHAT_API_KEY=ms-…",
    "              STACKMEM_CHAT_MODEL=Qwen/Qwen3-30B-A3B-Instruct-2507",
    "            or a server of your own:",
    "              STACKMEM_CHAT_BASE_URL=http://127.0.0.1:8080/v1                   (llama.cpp, Ollama, vLLM …)",
    "              STACKMEM_CHAT_MODEL=qwen3",
]


def _command() -> str:
    """Return how the command is called here: by its path where it is not on the PATH."""
    own = Path(sys.argv[0])
    if shutil.which("stackmem") or own.name != "stackmem":
        return "stackmem"
    return os.path.relpath(own) if own.is_relative_to(Path.cwd()) else str(own)


def _reach(bound: Bound, insecure: bool) -> list[str]:
    address = lan_address()
    if is_loopback(bound):
        return [
            f"Talk to it here:   {_command()} chat, or {local_url(bound)}/ in a browser",
            f"For the robot:     {_command()} devices add NAME, then {_command()} up --host 0.0.0.0"
            + (f"; its address will be {_url(address, bound[1])}/v1/turns" if address else ""),
        ]
    shown = on_the_lan(bound) or "this machine's address"
    how = "no token is asked for: --insecure" if insecure else "with its token: Authorization: Bearer …"
    url = _url(shown, bound[1])
    return [
        f"The robot's address: {url}/v1/turns   ({how})",
        f"  stackchan-kai: {url}/kai   AI_StackChan_Ex and other chat clients: {url}/v1/chat/completions",
    ]
