"""The web server of the explorer: its routes, their responses, and the address it listens on."""

from __future__ import annotations

import base64
import ipaddress
import json
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from os import PathLike
from typing import Any
from urllib.parse import quote

import numpy as np

from ig2.errors import InputError, describe, import_extra, reason
from ig2.explorer.catalogue import LAYOUTS, Query
from ig2.explorer.collection import Collection
from ig2.explorer.connections import make_protocol
from ig2.explorer.exports import write_csv, write_figures, write_parquet, write_report
from ig2.explorer.guard import Guard
from ig2.explorer.routes import POSTS, add_whatif, encode_json
from ig2.explorer.whatif import WhatIf

PORT = 8642
TRIES = 20  # ports after the default one that are tried if it is taken
MOST_RANGES = 20
# every file that is served, by its name in the address: nothing else of the disk has one
FILES = {
    "drawing.js": ("ig2.report", "text/javascript; charset=utf-8"),
    "item.js": ("ig2.report", "text/javascript; charset=utf-8"),
    "page.css": ("ig2.report", "text/css; charset=utf-8"),
    "data.js": ("ig2.explorer", "text/javascript; charset=utf-8"),
    "explorer.js": ("ig2.explorer", "text/javascript; charset=utf-8"),
    "explorer.css": ("ig2.explorer", "text/css; charset=utf-8"),
    "whatif.js": ("ig2.explorer", "text/javascript; charset=utf-8"),
    "whatif.css": ("ig2.explorer", "text/css; charset=utf-8"),
}
DATA = {"data.js": "server.js"}  # where the page's data come from; in an exported site it is files.js


def parse_query(
    where: str = "",
    text: str = "",
    ranges: str = "",
    cell: str = "",
    brush: str = "",
    cluster: str = "",
    sort: str = "",
    layout: str = "",
) -> Query:
    """Return the query of an address.

    Args:
        where: a condition.
        text: the search text.
        ranges: `trust:0:0.5,output:-1:2`.
        cell: a label and a prediction, as JSON.
        brush: `left,top,right,bottom`.
        cluster: a number.
        sort: a column, with a minus in front for the largest first.
        layout: the map that the brush is on; by default pca.

    Raises:
        InputError: if one of them has another form.
    """
    pieces = [piece.split(":") for piece in ranges.split(",") if piece]
    if len(pieces) > MOST_RANGES or not all(len(piece) == 3 for piece in pieces):
        raise InputError(f"ranges are such as trust:0:0.5,output:-1:2, got {describe(ranges)}")
    corners = _read_numbers(brush.split(","), "brush") if brush else []
    if corners and len(corners) != 4:
        raise InputError(f"a brush has four numbers, got {describe(brush)}")
    if cluster and not cluster.isdecimal():
        raise InputError(f"a cluster is a number, got {describe(cluster)}")
    try:
        names = json.loads(cell) if cell else None
    except (ValueError, RecursionError) as error:
        raise InputError(f"a cell is a label and a prediction as JSON, got {describe(cell)}") from error
    if names is not None and not (isinstance(names, list) and len(names) == 2 and all(isinstance(name, str) for name in names)):
        raise InputError(f"a cell is a label and a prediction as JSON, got {describe(cell)}")
    limits = tuple((name, *_read_numbers([low, high], "ranges")) for name, low, high in pieces)
    return Query(
        where, text, limits, tuple(names) if names else None, tuple(corners) or None,  # type: ignore[arg-type]
        int(cluster[:9]) if cluster else None, sort, _read_layout(layout),
    )  # fmt: skip


def _read_layout(layout: str) -> str:
    if layout and layout not in LAYOUTS:
        raise InputError(f"a layout is {' or '.join(LAYOUTS)}, got {describe(layout)}")
    return layout or LAYOUTS[0]


def _read_numbers(texts: Sequence[str], name: str) -> list[float]:
    try:
        return [float(text) for text in texts]
    except ValueError as error:
        raise InputError(f"{name} has {describe(list(texts))}, expected numbers") from error


def make_app(collection: Collection, whatif: WhatIf | None = None) -> Any:
    """Return the web application over a collection, without its guard.

    Args:
        collection: the displayed stores.
        whatif: the model that explains new inputs.

    Raises:
        MissingExtraError: if FastAPI is not installed.
    """
    fastapi = import_extra("fastapi", "serve", "ig2 serve")
    responses = import_extra("fastapi.responses", "serve", "ig2 serve")
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    url_query = fastapi.Depends(parse_query)

    def answer_json(content: Any) -> Any:
        return responses.Response(encode_json(content), media_type="application/json")

    async def refuse(request: Any, error: InputError) -> Any:
        return responses.JSONResponse({"error": str(error)}, status_code=400)

    async def fail(request: Any, error: Exception) -> Any:
        return responses.JSONResponse({"error": f"the server failed: {reason(error)}"}, status_code=500)

    app.add_exception_handler(InputError, refuse)
    app.add_exception_handler(Exception, fail)

    def add(path: str) -> Callable[[Any], Any]:
        # plain functions: each runs in a thread, so that a slow one keeps no other waiting
        return app.get(path, response_model=None)  # type: ignore[no-any-return]

    @add("/")
    def show_page() -> Any:
        return responses.HTMLResponse(read_file("ig2.explorer", "explorer.html"))

    @add("/static/{name}")
    def send_file(name: str) -> Any:
        if name not in FILES:
            return responses.JSONResponse({"error": "there is no such file"}, status_code=404)
        package, kind = FILES[name]
        return responses.Response(read_file(package, DATA.get(name, name)), media_type=kind)

    @add("/api/stores")
    def send_stores() -> Any:
        collection.refresh()
        return answer_json({**collection.describe(), "whatif": whatif is not None})

    @add("/api/overview")
    def send_overview(query: Query = url_query) -> Any:
        return answer_json(collection.catalogue.summarise(collection.find(query)))

    @add("/api/rows")
    def send_rows(query: Query = url_query, start: int = 0, count: int = 30) -> Any:
        return answer_json(collection.list_rows(query, start, count))

    @add("/api/place")
    def send_place(id: str, query: Query = url_query) -> Any:
        """Send the position of an item in a list, so that the list can be scrolled there."""
        places = np.flatnonzero(collection.find(query) == collection.locate(id))
        return answer_json({"place": int(places[0]) if len(places) else None})

    @add("/api/map")
    def send_map(layout: str = "") -> Any:
        chosen = _read_layout(layout)
        progress = collection.start_projection(chosen)
        if progress < 1.0:
            return answer_json({"progress": progress})
        return answer_json({"progress": 1.0, "trouble": collection.trouble, **collection.encode_points(chosen)})

    @add("/api/selection")
    def send_selection(query: Query = url_query) -> Any:
        """Send one bit for each item: whether it matches the query."""
        chosen = np.zeros(len(collection.catalogue), dtype=bool)
        chosen[collection.find(query)] = True
        return answer_json({"bits": base64.b64encode(np.packbits(chosen, bitorder="little").tobytes()).decode()})

    @add("/api/clusters")
    def send_clusters() -> Any:
        return answer_json({"clusters": collection.describe_clusters()})

    @add("/picture")
    def send_picture(id: str) -> Any:
        content, kind = collection.read_picture(id)
        return responses.Response(content, media_type=kind)

    @add("/api/item")
    def send_item(id: str) -> Any:
        return answer_json(collection.show_item(id))

    @add("/export")
    def send_export(format: str, query: Query = url_query) -> Any:
        positions, name = collection.find(query), collection.names[0]
        if format == "csv":
            body: Any = responses.StreamingResponse(write_csv(collection, positions), media_type="text/csv; charset=utf-8")
        elif format == "parquet":
            body = responses.Response(write_parquet(collection, positions), media_type="application/vnd.apache.parquet")
        elif format == "html":
            page = write_report(collection, positions, f"{len(positions)} of {name}").encode("utf-8", "replace")
            body = responses.Response(page, media_type="text/html; charset=utf-8")
        elif format == "zip":
            body = responses.Response(write_figures(collection, positions), media_type="application/zip")
        else:
            raise InputError(f"the format is csv, parquet, html or zip, got {describe(format)}")
        file = f"{name.replace('/', '-')}-selection.{format}"
        body.headers["content-disposition"] = f"attachment; filename*=utf-8''{quote(file)}"
        return body

    if whatif is not None:
        add_whatif(app, whatif)
    return app


def read_file(package: str, name: str) -> bytes:
    """Return a file of the pages."""
    return resources.files(package).joinpath(name).read_bytes()


# -- listening ---------------------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_guard(app: Any, host: str, token: str | None, posts: Iterable[str] = ()) -> Guard:
    """Return an application behind its guard, for the address it listens on."""
    names = {host.lower()}
    everywhere = host in ("0.0.0.0", "::")
    if is_loopback(host) or everywhere:
        names |= {"localhost", "127.0.0.1", "::1"}
    if everywhere:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return Guard(app, frozenset(names), token, everywhere, posts=frozenset(posts))


def serve(
    stores: Sequence[str | PathLike[str]],
    *,
    source: Any = None,
    whatif: Callable[[Collection], WhatIf] | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    started: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a page over stores until it is interrupted.

    Args:
        stores: the folders of one or several runs. The first has the items; the others are compared with it.
        source: the source of the images of the first store.
        whatif: a function from the collection to the model that explains new inputs, such as
            `lambda shown: WhatIf(shown, subject, ig2.IG2())`.
        host: the address to listen on. Any but a loopback address requires a token, which is part of the address passed to
            `started`.
        port: the port, by default 8642 or the next free one.
        started: called with the address to open, once it answers.

    Raises:
        InputError: if a folder is not a store, or the address cannot be listened on.
        MissingExtraError: if FastAPI or uvicorn is not installed.
    """
    collection = Collection(stores, source)
    with listen(host, port) as listener:
        make_server(collection, host, listener, started, None if whatif is None else whatif(collection)).run([listener])


def make_server(
    collection: Collection,
    host: str,
    listener: socket.socket,
    started: Callable[[str], None] = lambda address: None,
    whatif: WhatIf | None = None,
) -> Any:
    """Return the `uvicorn.Server` of a collection, guarded; `run([listener])` runs it until `should_exit` is set."""
    uvicorn = import_extra("uvicorn", "serve", "ig2 serve")
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    names = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}
    shown = names.get(host, f"[{host}]" if ":" in host else host)
    address = f"http://{shown}:{listener.getsockname()[1]}/" + ("" if token is None else f"?token={token}")
    app = make_guard(make_app(collection, whatif), host, token, POSTS if whatif is not None else ())
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False,
        timeout_keep_alive=5, timeout_graceful_shutdown=2, h11_max_incomplete_event_size=32_768,
        http=make_protocol(), ws="none", proxy_headers=False, lifespan="off",
    )  # fmt: skip

    class Server(uvicorn.Server):  # type: ignore[name-defined, misc]
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started(address)

        async def shutdown(self, sockets: Any = None) -> None:
            if whatif is not None:
                whatif.queue.stop()  # streams that are open end, and are not torn off
            await super().shutdown(sockets)

    return Server(config)


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens; without a port, on the default one or the next that is free.

    Raises:
        InputError: if there is none.
    """
    failure: OSError | None = None
    for number in [port] if port is not None else range(PORT, PORT + TRIES):
        try:
            family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, number), family=family, backlog=128)
        except OSError as error:
            failure = error
    assert failure is not None
    wanted = f"port {port}" if port is not None else f"ports {PORT} to {PORT + TRIES - 1}"
    raise InputError(f"{host} cannot be listened on, {wanted}: {reason(failure)}; choose another --host or --port")
