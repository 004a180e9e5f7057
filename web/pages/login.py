"""Who does not sit at this machine shows a device's token once; a cookie then carries it."""

from flask import Blueprint, g, make_response, redirect, request, url_for
from werkzeug.exceptions import Unauthorized
from werkzeug.wrappers import Response

from stackmem import devices
from web.access import COOKIE, PAGES
from web.pages.errors import error_page
from web.pages.shown import page, words
from web.problems import problem

blueprint = Blueprint("login", __name__)

KEPT_FOR = 90 * 24 * 3600  # seconds


def refuse(status: int, sentence: str, **headers: str) -> Response:
    """Answer who shows no token: a page leads to the login, the API says what is wrong."""
    if PAGES not in request.blueprints:
        return problem(status, sentence, **headers)
    if request.method == "GET":
        return redirect(url_for("pages.login.show"), 303)
    return make_response(error_page(status, words()["login"]["first"]))


@blueprint.get("/login")
def show() -> str:
    """Ask for the token of a device."""
    return page("login.html", wrong=False)


@blueprint.post("/login")
def enter() -> Response:
    """Take a token. The owner is the device's from now on, on this machine too."""
    token = request.form.get("token", "").strip()
    if devices.find(token) is None:
        return make_response(page("login.html", wrong=True), Unauthorized.code)
    answer = redirect(url_for("pages.home.show"), 303)
    answer.set_cookie(COOKIE, token, KEPT_FOR, httponly=True, samesite="Strict", secure=request.is_secure)
    return answer


@blueprint.post("/logout")
def leave() -> Response:
    """Drop the token."""
    answer = redirect(url_for("pages.home.show") if g.device is None else url_for("pages.login.show"), 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="Strict")
    return answer
