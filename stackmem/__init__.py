"""stackmem: a long-term memory for small talking robots.

A live turn goes through ``converse.py``; what its tools do is in ``recall.py``.
A memory is made in ``remember.py``, embedded and indexed in ``indexing.py``, set against older ones in ``compare.py``.
"""

__version__ = "0.1.0"
