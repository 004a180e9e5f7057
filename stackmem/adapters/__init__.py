"""One file per outside thing; ``bootstrap.py`` is the only place that builds them."""
