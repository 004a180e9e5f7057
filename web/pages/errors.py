"""What went wrong, as a page for people."""

from flask import Blueprint, Flask, request
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from web.completions import shaped
from web.pages.shown import page
from web.problems import SENTENCES, handle_errors, problem

Page = tuple[str, int, dict[str, str]]


def error_page(status: int, sentence: str, **headers: str) -> Page:
    """Return a page that says what is wrong and leads back."""
    return page("error.html", status=status, sentence=sentence), status, headers


def register(app: Flask, pages: Blueprint) -> None:
    """Handle every error of the pages, and addresses that a browser asks for in vain."""
    handle_errors(pages, error_page)

    @app.errorhandler(404)
    def _nothing(error: NotFound) -> Page | Response:
        if "text/html" in request.headers.get("Accept", "") and not request.path.startswith("/v1/"):
            return error_page(404, SENTENCES[404])
        answer: Response = shaped(problem)(404, SENTENCES[404])
        return answer
