"""llama.cpp in a process of its own: a crash in C++ ends this process and not the robot's server.

Started by ``llama_server.py`` with a line of JSON on its stdin. It answers with one on its stdout: ``{"address": …}``
of an OpenAI-compatible server, or ``{"fault": …}``. It ends when its stdin does, so also when its parent was killed.
"""

import json
import os
import sys
from typing import Any

PARALLEL = 2  # a live turn must not wait for the memory model's minutes
BATCH = 512  # tokens of another's prompt that it does wait for


def serve(order: dict[str, Any]) -> Any:
    """Load the model and return its running server, listening on a free port of this machine alone.

    ``order``: ``model`` (path), ``context`` (tokens of one request), ``threads`` (0: one a physical core), ``api_key``.
    Raises RuntimeError where llama.cpp cannot load the model; why stands on stderr.
    """
    import xllamacpp

    wanted = xllamacpp.CommonParams()
    wanted.model.path = order["model"]
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.api_keys = [order["api_key"]]  # every user, and every page in a browser, reaches this machine's ports
    wanted.n_ctx = order["context"] * PARALLEL
    wanted.n_parallel = PARALLEL
    wanted.n_batch = BATCH
    wanted.cpuparams.n_threads = order["threads"] or -1
    wanted.use_jinja = True  # tool calls as the model's own template has them
    wanted.default_template_kwargs = {"enable_thinking": "false"}  # a robot's turn has no time for it
    wanted.cache_ram_mib = 0  # else up to 8 GB of prompts that were answered
    wanted.ui = False
    wanted.endpoint_slots = False  # it shows what is being said
    wanted.verbosity = 2  # errors and warnings
    return xllamacpp.Server(wanted)


def main() -> None:
    """Serve until stdin ends."""
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever llama.cpp prints must not stand between our lines
    order = json.loads(sys.stdin.readline())
    try:
        server = serve(order)
    except Exception as exc:  # the process's edge: told to the process that started this one
        print(json.dumps({"fault": str(exc)}), file=said, flush=True)
        return
    print(json.dumps({"address": server.listening_address}), file=said, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
