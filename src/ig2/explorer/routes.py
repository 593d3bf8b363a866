"""The routes of what-if: questions are JSON, answers are streamed line by line as they are computed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ig2.errors import InputError, import_extra
from ig2.explorer.collection import Collection
from ig2.explorer.keeping import INPUTS
from ig2.explorer.queueing import Event, FairQueue, Job
from ig2.explorer.whatif import WhatIf
from ig2.modalities.editing import parse_json
from ig2.report import render
from ig2.report.page import JSON

BODY_SECONDS = 30.0  # that a body may take to come
HEARTBEAT = 1.0  # seconds after which a line is sent that says nothing, so that a lost connection shows
LAST = ("end", "cancelled", "error")
LONGEST_SESSION = 100
READ, KEEP, EXPLAIN = "/whatif/read", "/whatif/keep", "/whatif/explain"
POSTS = (READ, KEEP, EXPLAIN)


def add_whatif(app: Any, whatif: WhatIf) -> None:
    """Add the routes of what-if to an application."""
    responses = import_extra("fastapi.responses", "serve", "ig2 serve")
    fastapi = import_extra("fastapi", "serve", "ig2 serve")
    threads = import_extra("fastapi.concurrency", "serve", "ig2 serve")
    queue = whatif.queue

    def answer_json(content: Any) -> Any:
        return responses.Response(encode_json(content), media_type="application/json")

    def send_about() -> Any:
        return answer_json(whatif.describe())

    def send_item(id: str) -> Any:
        return answer_json(whatif.show_item(id))

    def show_kept(id: str) -> Any:
        return responses.HTMLResponse(_render_kept(whatif.keeper.folder, id))

    for path, answer in (("/whatif/about", send_about), ("/whatif/item", send_item), ("/whatif/kept", show_kept)):
        app.get(path, response_model=None)(answer)

    async def read_upload(request: Any) -> Any:
        content, name = await _read_body(request), request.query_params.get("name", "")
        return answer_json(await threads.run_in_threadpool(whatif.editor.read_upload, content, name))

    async def keep(request: Any) -> Any:
        fields = parse_json(await _read_body(request))
        trial, name = (str(fields.get(field, "")) for field in ("trial", "name"))
        identity = await threads.run_in_threadpool(whatif.keep, trial, name)
        return answer_json({"id": identity, "folder": whatif.keeper.folder.name})

    async def explain(request: Any) -> Any:
        content = await _read_body(request)
        question = await threads.run_in_threadpool(whatif.parse, content)
        session = request.headers.get("x-ig2-session", "")[:LONGEST_SESSION]
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Event]()

        def report(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        job = Job(session or str(id(events)), lambda check: whatif.ask(question, check), report)
        queue.add(job)
        return responses.StreamingResponse(_send_events(job, events, queue), media_type="application/x-ndjson")

    for path, take in ((READ, read_upload), (KEEP, keep), (EXPLAIN, explain)):
        take.__annotations__ = {"request": fastapi.Request}  # as texts, FastAPI could not look them up here
        app.post(path, response_model=None)(take)


def encode_json(content: Any) -> bytes:
    """Return an answer as JSON on one line."""
    return json.dumps(content, ensure_ascii=False, **JSON).encode("utf-8", "replace")


async def _send_events(job: Job, events: asyncio.Queue[Event], queue: FairQueue) -> AsyncIterator[bytes]:
    """Yield the events of a job as lines; the job is cancelled when the stream ends."""
    try:
        while True:
            try:
                event = await asyncio.wait_for(events.get(), HEARTBEAT)
            except TimeoutError:
                yield b"\n"
                continue
            yield encode_json(event) + b"\n"
            if event["event"] in LAST:
                return
    finally:
        queue.cancel(job)


async def _read_body(request: Any) -> bytes:
    """Return the body of a request, whose length the guard has checked."""
    try:
        return bytes(await asyncio.wait_for(request.body(), BODY_SECONDS))
    except TimeoutError as error:
        raise InputError(f"the request took more than {BODY_SECONDS:.0f} s to come") from error


def _render_kept(folder: Path, identity: str) -> bytes:
    """Return the report of a kept input."""
    if not folder.is_dir():
        raise InputError("nothing was kept yet")
    inputs = folder / INPUTS
    collection = Collection([folder], inputs if inputs.is_dir() else None)
    return render(collection.make_report([identity], identity)).encode("utf-8", "replace")
