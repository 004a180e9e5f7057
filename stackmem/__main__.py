"""``python -m stackmem`` is ``stackmem``."""

from stackmem.cli import main

main(prog_name="stackmem")
