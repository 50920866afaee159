"""Logging in and out by browser: the only routes open to unknown visitors (api/middleware/auth.py).

`next` is the page that a visitor wanted. It is always appended to "./", so it cannot redirect to another host.
Not here: what the page looks like (login_page.py), who is let in (access/identify.py).
"""

from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from studio.access.cookies import choose_flags
from studio.access.hub_login import STATE_COOKIE, STATE_S, HubLoginError, HubLogins
from studio.access.identify import KNOWN_COOKIE, KNOWN_S, Door
from studio.access.limits import RateError
from studio.access.own_page import is_own_page
from studio.access.passwords import MAX_CHARS
from studio.access.sessions import COOKIE, SESSION_S
from studio.access_settings import Mode
from studio.ui import catalogues
from studio.ui.login_page import FONT, FONT_PATH, LoginForm, show_login

Next = Annotated[str, Query(alias="next", max_length=2000)]


def make_router(door: Door) -> APIRouter:
    """Makes the login routes for the studio's mode; none in modes without a login."""
    router = APIRouter(include_in_schema=False)
    mode = door.settings.mode
    if mode is Mode.OPEN:
        return router

    @router.get("/login")
    def show(request: Request, onward: Next = "") -> Response:
        if _is_known(door, request):
            return _go(onward)
        return show_login(mode, LoginForm(language=_choose_language(request), onward=onward))

    @router.get(f"/{FONT_PATH}")
    def send_font() -> FileResponse:
        return FileResponse(FONT, headers={"Cache-Control": "public, max-age=604800"})

    if mode is Mode.PROXY:
        return router

    @router.post("/logout")
    @router.get("/logout")
    def log_out(request: Request) -> Response:
        """Ends the session, also for those who open the address, as Gradio's users do; not by another site's link."""
        if request.method == "GET" and not is_own_page(request.headers):
            return _go("")
        door.log_out(request.headers)
        answer = RedirectResponse("./login", status_code=303)
        answer.delete_cookie(COOKIE, **choose_flags(door.settings, request))
        return answer

    if mode is Mode.PASSWORD:
        _add_password(router, door)
    elif door.settings.hub_login is not None:
        _add_hub(router, door, HubLogins(door.settings.hub_login, door.key))
    return router


def _add_password(router: APIRouter, door: Door) -> None:
    @router.post("/login")
    async def log_in(
        request: Request,
        name: Annotated[str, Form(max_length=100)] = "",
        password: Annotated[str, Form(max_length=MAX_CHARS)] = "",
        onward: Annotated[str, Form(alias="next", max_length=2000)] = "",
    ) -> Response:
        address = door.find_address(request.headers, request.client.host if request.client else None)
        language = _choose_language(request)
        visit = LoginForm(language=language, onward=onward, name=name)
        try:
            known = request.cookies.get(KNOWN_COOKIE, "")
            session = await door.passwords.run(partial(door.log_in, name, password, address, known=known))
        except RateError as error:
            wait = str(round(error.wait_s) + 1)
            problem = catalogues.say("login.tooOften", language, seconds=wait)
            answer = show_login(Mode.PASSWORD, replace(visit, problem=problem), status=429)
            answer.headers["Retry-After"] = wait
            return answer
        if session is None:
            problem = catalogues.say("login.wrong", language)
            return show_login(Mode.PASSWORD, replace(visit, problem=problem), status=401)
        answer = _welcome(door, request, session, onward)
        answer.set_cookie(
            KNOWN_COOKIE, door.make_known(name), max_age=int(KNOWN_S), **choose_flags(door.settings, request)
        )
        return answer


def _add_hub(router: APIRouter, door: Door, logins: HubLogins) -> None:
    @router.get("/login/huggingface")
    async def begin(request: Request, onward: Next = "") -> Response:
        try:
            url, cookie = await logins.begin(onward)
        except HubLoginError as error:
            visit = LoginForm(language=_choose_language(request), onward=onward, problem=str(error))
            return show_login(Mode.HUGGINGFACE, visit, status=502)
        answer = RedirectResponse(url, status_code=303)
        answer.set_cookie(STATE_COOKIE, cookie, max_age=int(STATE_S), **choose_flags(door.settings, request))
        return answer

    @router.get("/login/callback")
    async def finish(request: Request) -> Response:
        try:
            account, onward = await logins.finish(request.query_params, request.cookies.get(STATE_COOKIE, ""))
        except HubLoginError as error:
            door.audit.note("login.failed", by="huggingface", reason=error.detail)
            visit = LoginForm(language=_choose_language(request), problem=str(error), root="../")
            return show_login(Mode.HUGGINGFACE, visit, status=401)
        name = account.preferred_username
        session = door.sessions.open(owner=account.owner, name=name, stamp=Mode.HUGGINGFACE)
        door.audit.note("login", name=name, owner=account.owner, by="huggingface")
        answer = _welcome(door, request, session, f"../{onward}")
        answer.delete_cookie(STATE_COOKIE, **choose_flags(door.settings, request))
        return answer


def _welcome(door: Door, request: Request, session: str, onward: str) -> Response:
    answer = _go(onward)
    answer.set_cookie(COOKIE, session, max_age=int(SESSION_S), **choose_flags(door.settings, request))
    return answer


def _go(onward: str) -> Response:
    return RedirectResponse(f"./{onward}", status_code=303)


def _choose_language(request: Request) -> str:
    return catalogues.choose(request.headers.get("accept-language", ""), request.cookies.get(catalogues.COOKIE, ""))


def _is_known(door: Door, request: Request) -> bool:
    return door.identify(request.headers, request.client.host if request.client else None) is not None
