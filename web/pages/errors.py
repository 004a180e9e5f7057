"""What went wrong, as a page for people."""

import logging

from flask import Blueprint, Flask, request
from peewee import DatabaseError, InterfaceError
from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.wrappers import Response

from stackmem.exceptions import StackmemError
from web.pages.shown import page
from web.problems import SENTENCES, problem

log = logging.getLogger(__name__)

Page = tuple[str, int]


def error_page(status: int, sentence: str) -> Page:
    """Return a page that says what is wrong and leads back."""
    return page("error.html", status=status, sentence=sentence), status


def register(app: Flask, pages: Blueprint) -> None:
    """Handle every error of the pages, and addresses that a browser asks for in vain."""

    @pages.errorhandler(StackmemError)
    def _ours(error: StackmemError) -> Page:
        return error_page(error.status, str(error))

    @pages.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Page:
        status = error.code or 500
        return error_page(status, SENTENCES.get(status, error.description or ""))

    @pages.errorhandler(DatabaseError)
    @pages.errorhandler(InterfaceError)
    def _database(error: Exception) -> Page:
        log.error("%s %s: %s", request.method, request.path, error)
        return error_page(503, "The database did not take the request; try again in a moment.")

    @pages.errorhandler(Exception)
    def _unexpected(error: Exception) -> Page:
        log.exception("%s %s failed", request.method, request.path)
        return error_page(500, f"Something went wrong inside stackmem ({type(error).__name__}); its log says more.")

    @app.errorhandler(404)
    def _nothing(error: NotFound) -> Page | Response:
        if "text/html" in request.headers.get("Accept", "") and not request.path.startswith("/v1/"):
            return error_page(404, SENTENCES[404])
        return problem(404, SENTENCES[404])
