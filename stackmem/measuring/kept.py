"""The measured nearness of bf16 and int8 to fp32, kept in the home folder for `stackmem doctor`."""

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from stackmem.ports import Fingerprint

FILE = "measured.json"
LIKE_FP32 = 0.95  # mean cosine below which vectors are other vectors


def keep(home: Path, cosines: Mapping[str, float], now: datetime) -> None:
    """Keep cosines by fingerprint; what was measured of others before stays. Raises OSError."""
    found = _read(home)
    for fingerprint, cosine in cosines.items():
        found[fingerprint] = {"cosine_to_fp32": round(cosine, 6), "measured_at": now.isoformat(timespec="seconds")}
    written = home / f"{FILE}.new"
    written.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    os.replace(written, home / FILE)


def nearness(home: Path, fingerprint: Fingerprint) -> tuple[bool, str]:
    """Tell whether a precision's vectors are known to be near those of fp32, and say it in a sentence.

    The sentence is empty where there is nothing to say: fp32, or an embedder without precisions.
    """
    if fingerprint.precision in ("", "fp32"):
        return True, ""
    cosine = _cosine(_read(home).get(str(fingerprint)))
    what = f"{fingerprint.name} at {fingerprint.precision} in {fingerprint.dim} dimensions"
    if cosine is None:
        return False, f"How near {what} is to fp32 was never measured on this machine: run `stackmem bench embed`."
    if cosine < LIKE_FP32:
        return False, (
            f"{what} is far from fp32: cosine {cosine:.3f}, at least {LIKE_FP32} is wanted. Take another "
            "STACKMEM_QWEN3_PRECISION, then run `stackmem reindex`."
        )
    return True, f"{what} is near fp32: cosine {cosine:.3f}."


def _read(home: Path) -> dict[str, Any]:
    """Return what is kept; nothing where the file is missing or damaged: it can be measured again."""
    try:
        found = json.loads((home / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _cosine(measured: Any) -> float | None:
    try:
        return float(measured["cosine_to_fp32"])
    except (TypeError, KeyError, ValueError):
        return None
