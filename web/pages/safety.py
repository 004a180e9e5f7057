"""What keeps the pages safe: nothing from elsewhere, no form from elsewhere, nothing left in a cache."""

import hmac
import secrets

from flask import Blueprint, Flask, Response, g, request
from werkzeug.exceptions import Forbidden

from web.access import PAGES

COOKIE = "stackmem_csrf"
FIELD = "csrf_token"
UPLOADS = {f"{PAGES}.transfer.take": 64 * 1024 * 1024}  # bytes of a form; all others keep the app's limit

# https://www.w3.org/TR/CSP3/: scripts and styles are files of ours; nobody frames a page, no form goes elsewhere.
POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"


def register(app: Flask, pages: Blueprint) -> None:
    """Check every form, and send every page with its policy."""
    app.jinja_env.globals["csrf_token"] = csrf_token

    @pages.before_request
    def _check_form() -> None:
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            request.max_content_length = UPLOADS.get(request.endpoint or "")
            _check_token()

    @app.after_request
    def _protect(response: Response) -> Response:
        if response.mimetype == "text/html":
            response.headers["Content-Security-Policy"] = POLICY
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["Referrer-Policy"] = "same-origin"
            response.headers["Cache-Control"] = "no-store"
            response.headers["Vary"] = "Accept-Language, Cookie"
        if g.get("csrf") and g.csrf != request.cookies.get(COOKIE):
            response.set_cookie(COOKIE, g.csrf, httponly=True, samesite="Strict", secure=request.is_secure)
        return response


def csrf_token() -> str:
    """Return what every form of this browser carries: another site can neither read the cookie nor the page."""
    if "csrf" not in g:
        g.csrf = request.cookies.get(COOKIE) or secrets.token_urlsafe(32)
    return str(g.csrf)


def _check_token() -> None:
    known, given = request.cookies.get(COOKIE, ""), request.form.get(FIELD, "")
    if not known or not hmac.compare_digest(known.encode("utf-8", "replace"), given.encode("utf-8", "replace")):
        raise Forbidden("This form is too old, or did not come from this page: load the page again.")
