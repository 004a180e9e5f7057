"""The pages for people: what the robot knows of them, why it said that, and whether it is getting better."""

from flask import Blueprint, Flask

from web.access import PAGES
from web.pages import (
    changing,
    conversations,
    errors,
    health,
    home,
    login,
    memories,
    runs,
    safety,
    scores,
    shown,
    talk,
    transfer,
    waiting,
)


def register(app: Flask) -> None:
    """Add the pages, what every page shows, and what keeps them safe."""
    pages = Blueprint(PAGES, __name__)
    for module in (home, login, talk, memories, changing, waiting, transfer, conversations, scores, runs, health):
        pages.register_blueprint(module.blueprint)
    safety.register(app, pages)
    errors.register(app, pages)
    shown.register(app)
    app.register_blueprint(pages)
