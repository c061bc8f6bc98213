"""The addon's hooks: which flows are ours, and what is done with each. A fault in a hook never costs a flow."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any, Optional
from weakref import WeakSet

from mitmproxy import ctx, exceptions
from mitmproxy.addonmanager import Loader
from mitmproxy.http import HTTPFlow, Response
from mitmproxy.version import VERSION

from addon import exchange, kept, live, log, options, report, story, views
from addon.capture import Capture
from addon.coding import decoder_for
from addon.commands import Commands
from addon.exchange import Collector, Exchange, Pipe, Rewriter
from addon.repetition import Repetition, ResumablePipe, Resumption, is_ours
from addon.request_side import RequestSide
from dsml_core.answers import Answers
from dsml_core.context import Context
from dsml_core.formats import wire_of
from dsml_core.policy import Policy
from dsml_core.stream import Repairer

logger = logging.getLogger("dsml")

STREAMED = ("text/event-stream", "application/x-ndjson")
WHOLE = ("application/json",)
RESUME_KNOWN = "12.0.1 to 12.3.1"  # versions of mitmproxy whose inside `addon.resume` is known to fit


class Untouched(Exception):
    """Why a response is left alone."""


Hook = Callable[["Dsml", HTTPFlow], None]


def guarded(hook: Hook) -> Hook:
    """A hook that reports its own exceptions: the flow goes on as if we were not there."""

    @functools.wraps(hook)
    def safe(self: Dsml, flow: HTTPFlow) -> None:
        try:
            hook(self, flow)
        except Exception:
            logger.warning("dsml: fault in %s, the flow goes on without us", hook.__name__, exc_info=True)

    return safe


class Dsml:
    """The object mitmproxy talks to."""

    name = "dsml"

    def __init__(self) -> None:
        self.settings = options.Settings()
        self.tally = log.Tally()
        self.recent = live.Recent()
        self.capture = Capture()
        self.addons = [Commands(self), self.capture]
        self._json_log = live.JsonLog()
        self._requests = RequestSide(self.policy)
        self._pushing: ModuleType | None = None
        self._resuming: ModuleType | None = None
        self._under_way: WeakSet[HTTPFlow] = WeakSet()
        self._running = False

    def load(self, loader: Loader) -> None:
        for sentence in options.settle_deferred(ctx.options.deferred):
            logger.error("dsml: %s", sentence)  # an error while starting stops mitmproxy
        for option in options.OPTIONS:
            # The type is compared with this spelling.
            loader.add_option(option.name, Optional[str], option.default, option.help)  # type: ignore[arg-type] # noqa: UP045
        views.install(lambda: self.policy(Context()))
        try:
            self._pushing = importlib.import_module("addon.pushing")
            self._pushing.install()
        except (ImportError, AttributeError) as error:
            self._pushing = None
            logger.warning(
                "dsml: this mitmproxy is built in another way (%s): held text waits for a provider that is silent, "
                "and is lost when the provider breaks off",
                error,
            )

    def configure(self, updated: set[str]) -> None:
        log.set_level()
        try:
            if sentence := options.unknown(ctx.options.deferred):
                raise ValueError(sentence)
            self.settings = options.read({row.name: getattr(ctx.options, row.name) for row in options.OPTIONS})
            self._open_files()
            self.capture.use(self.settings)
            self._prepare_resume()
        except ValueError as error:
            if self._running:
                raise exceptions.OptionsError(f"dsml: {error}") from None  # type: ignore[no-untyped-call]
            logger.error("dsml: %s", error)  # stops mitmproxy too, and shows no traceback

    def _open_files(self) -> None:
        """`ValueError` where a file cannot be written, now and not in the middle of a stream."""
        try:
            self._json_log.open(self.settings.log)
            report.check(self.settings.report)
        except OSError as error:
            raise ValueError(f"cannot write to {error.filename}: {error.strerror}") from None

    def _prepare_resume(self) -> None:
        """`ValueError` where requests shall be sent again and this mitmproxy does not let us."""
        if self._resuming and not self.settings.resume:
            self._resuming.uninstall()
            self._resuming = None
        elif self.settings.resume and not self._resuming:
            try:
                resuming = importlib.import_module("addon.resume")
                resuming.install()
            except (ImportError, AttributeError) as error:
                raise ValueError(
                    f"dsml_resume needs a mitmproxy built as {RESUME_KNOWN} are; this one, {VERSION}, is not: {error}"
                ) from None
            self._resuming = resuming

    def running(self) -> None:
        self._running = True

    def done(self) -> None:
        if self._resuming:
            self._resuming.uninstall()
        if self._pushing:
            self._pushing.uninstall()
        if ctx.master.should_exit.is_set():  # else this addon is reloaded: what is under way goes on
            self._cut_short()
        for line in self.tally.summary():
            logger.info("dsml: %s", line)
        self._save_page()
        self._json_log.close()
        self.capture.end()

    def _cut_short(self) -> None:
        """Report the responses under way: mitmproxy tells of their end only when the log is closed."""
        flows = list(self._under_way)
        for flow in flows:
            self._stopped(flow)
        if flows:
            logger.info("dsml: %s cut short: mitmproxy was stopped", log.counted(len(flows), "response"))

    def _save_page(self) -> None:
        if not self.settings.report:
            return
        try:
            report.save(self.settings.report, self.flows(), self.policy(Context()), self.settings.log_content)
        except Exception:
            logger.warning("dsml: the page of dsml_report was not written", exc_info=True)

    @guarded
    def requestheaders(self, flow: HTTPFlow) -> None:
        exchange.detach(flow)  # a flow may be replayed
        if not flow.live or self.settings.mode == "off" or is_ours(flow):
            return
        live.unmark(flow)
        wire = wire_of(flow.request.path) if flow.request.method == "POST" else None
        if wire is None:
            asked = f"{flow.request.method} {flow.request.path.partition('?')[0]}"
            logger.debug("dsml: untouched: %s", log.shown(asked))
            return
        exchange.attach(flow, Exchange(wire))
        if self.settings.mode == "repair" and (self.settings.stream or self.settings.body):
            flow.request.headers["accept-encoding"] = "identity"

    @guarded
    def request(self, flow: HTTPFlow) -> None:
        if current := exchange.of(flow):
            self._requests.take(flow, current, self.settings)

    @guarded
    def responseheaders(self, flow: HTTPFlow) -> None:
        response = flow.response
        if not flow.live or response is None or response.raw_content is not None:
            return  # loaded from a file, or made by another addon: there is no stream
        if content_type(response) in STREAMED and not response.stream:
            response.stream = True  # mitmproxy would keep an event stream back until its end
        if current := exchange.of(flow):
            try:
                current.pipe = self._pipe(current, response)
            except Untouched as reason:
                exchange.detach(flow)
                self._skip(flow, current, reason)
                return
            if isinstance(current.pipe, ResumablePipe):
                send = functools.partial(self._send_again, flow, current)
                current.resumption = Resumption(current.pipe, content_type(response), self.settings.resume, send)
            if self.settings.mode == "repair":
                reframe(flow.request.http_version, response)
            response.stream = current.pipe
            self._under_way.add(flow)

    @guarded
    def response(self, flow: HTTPFlow) -> None:
        if not flow.live:
            self.recent.add(flow)  # loaded from a file
        current = self._over(flow)
        if current is None or flow.response is None:
            return
        if current.pipe is None:
            try:
                current.pipe = self._repair_stored(current, flow.response)
            except Untouched as reason:
                self._skip(flow, current, reason)
                return
        else:
            if current.pipe.broken and not current.pipe.observe and flow.killable:
                flow.kill()  # type: ignore[no-untyped-call] # only where pushing could not end it at once
            release(flow.response, current.pipe)
        self._report(flow, current, current.pipe)

    @guarded
    def error(self, flow: HTTPFlow) -> None:
        self._break_off(flow, flow.error.msg if flow.error else "")

    @guarded
    def _stopped(self, flow: HTTPFlow) -> None:
        self._break_off(flow, "mitmproxy was stopped")

    def _break_off(self, flow: HTTPFlow, ended: str) -> None:
        current = self._over(flow)
        if current and current.resumption:
            current.resumption.cancel()
        if current and current.pipe:
            current.pipe.abort()
            if flow.response:
                release(flow.response, current.pipe)
            self._report(flow, current, current.pipe, ended)

    def _over(self, flow: HTTPFlow) -> Exchange | None:
        """The exchange of a flow that has come to its end."""
        self._under_way.discard(flow)
        return exchange.detach(flow)

    def _pipe(self, current: Exchange, response: Response, *, stored: bool = False) -> Pipe:
        """The pipe for a response, `Untouched` when it is none of ours."""
        if not 200 <= response.status_code < 300:
            raise Untouched(f"status {response.status_code}")
        kind = content_type(response)
        if kind not in STREAMED + WHOLE:
            raise Untouched(f"content type {log.shown(kind or 'missing')}")
        if self.settings.mode == "off" or not (self.settings.stream if kind in STREAMED else self.settings.body):
            raise Untouched("switched off by an option")
        context = current.context
        if context.tools is not None and not context.tools:
            raise Untouched("the request declares no tools")
        decoder = decoder_for("" if stored else response.headers.get("content-encoding", ""))
        if decoder is None:
            raise Untouched(f"content encoding {log.shown(response.headers['content-encoding'])}")
        policy, streamed = self.policy(context), kind in STREAMED
        how: dict[str, Any] = {
            "observe": self.settings.mode == "observe",
            "source": response.stream if callable(response.stream) else None,
            "idle_flush": self.settings.idle_flush,
            "keep": self.settings.keep_limit,
        }
        if self._resuming and current.resumable and streamed and not stored:
            return ResumablePipe(Answers(current.wire, tools=context.tools, policy=policy), decoder, **how)
        repairer: Rewriter = Repairer(current.wire, tools=context.tools, policy=policy, stream=streamed)
        return Pipe(repairer if streamed else Collector(repairer), decoder, **how)

    async def dsml_resume(self, flow: HTTPFlow) -> None:
        """The hook of `addon.resume`: called until the flow's resumption is over."""
        current = exchange.of(flow)
        if current and current.resumption:
            await current.resumption.step()

    def _send_again(self, flow: HTTPFlow, current: Exchange, shown: str) -> Repetition | None:
        request = self._requests.repeat(flow, current, shown, self.settings)
        if request is None or self._resuming is None:
            return None
        again: Repetition = self._resuming.Again(flow, request)
        return again

    def policy(self, context: Context) -> Policy:
        """The policy for a response to a request with this context."""
        settings = self.settings
        return Policy(
            profile=settings.profile,
            values=settings.values,
            undeclared=settings.undeclared,
            candidate_limit=settings.candidate_limit,
            hold_limit=settings.hold_limit,
            declared_hold_limit=settings.declared_hold_limit,
            calls=context.calls,
            quoted=context.quoted,
        )

    def _repair_stored(self, current: Exchange, response: Response) -> Pipe:
        """Repair a response that another addon has made, in place."""
        pipe = self._pipe(current, response, stored=True)
        try:
            content = response.get_content(strict=True) or b""
        except ValueError as error:
            raise Untouched(str(error)) from None
        repaired = b"".join(pipe(content) + pipe(b""))
        if repaired != content:
            response.content = repaired
        return pipe

    def _skip(self, flow: HTTPFlow, current: Exchange, reason: Untouched) -> None:
        logger.debug("dsml: %s untouched: %s", current.wire, reason)
        made = live.skip(current.wire, str(reason), self.settings.mode, flow.id)
        flow.metadata[kept.RECORD] = made
        self._json_log.write(live.lines(made))

    def _report(self, flow: HTTPFlow, current: Exchange, pipe: Pipe, ended: str = "") -> None:
        pipe.report.model = pipe.report.model or current.context.model
        self.tally.add(pipe.report)
        if not pipe.observe:
            self._requests.answered(flow, current, pipe.report)
        kept.keep_body(flow, pipe.client)
        if pipe.fault:
            logger.warning("dsml: fault, the response went on without us", exc_info=pipe.fault)
        if pipe.broken:
            logger.warning("dsml: %s: the provider's content encoding is damaged: %s", pipe.report.wire, pipe.broken)
        context = current.context
        made = live.record(pipe, self.policy(context), flow.id, ended, context.tools or ())
        if made is None:
            return
        logger.log(logging.WARNING if pipe.report.faults else logging.INFO, "dsml: %s", made["line"])
        flow.metadata[kept.RECORD] = made
        kept.keep_other(flow, pipe.other, pipe.provider, pipe.arrivals)
        live.mark(flow, made)
        self.recent.add(flow)
        self._json_log.write(live.lines(made, pipe.report if self.settings.log_content else None))
        self.capture.take(flow)

    def flows(self) -> list[HTTPFlow]:
        """The flows of this session with a decision: all that are shown, or the last ones where none are shown."""
        shown = ctx.master.addons.get("view")  # type: ignore[no-untyped-call]
        flows = self.recent.flows() if shown is None else [flow for flow in shown if isinstance(flow, HTTPFlow)]
        return [flow for flow in flows if story.is_decided(flow)]


def content_type(response: Response) -> str:
    """The media type, lower case, without its parameters."""
    value: str = response.headers.get("content-type", "")
    return value.partition(";")[0].strip().lower()


def release(response: Response, pipe: Pipe) -> None:
    """Let the pipe go: a flow that is kept for display would keep it, and all it holds, for as long."""
    if response.stream is pipe:
        response.stream = True
    elif not pipe.fed_at:
        logger.warning("dsml: another addon took the stream of this response: it was not looked at")


def reframe(client_version: str, response: Response) -> None:
    """Headers for a body that is decoded and may change its length.

    HTTP/2 frames it; HTTP/1.1 needs chunks to keep the connection alive; in HTTP/1.0 the connection's end is its end.
    """
    response.headers.pop("content-encoding", None)
    response.headers.pop("content-length", None)
    if client_version == "HTTP/1.1" and response.http_version != "HTTP/1.0":
        response.headers.setdefault("transfer-encoding", "chunked")
