"""An editor for tests: pygls' client, one server process on standard input and output, and answers without `await`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

SECONDS = 20.0


class Editor:
    """One editor with its server; `ask` sends a request and waits for the answer."""

    def __init__(self, encodings: list[lsp.PositionEncodingKind] | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = LanguageClient("test", "1")
        self.published: dict[str, lsp.PublishDiagnosticsParams] = {}
        self.told = asyncio.Event()
        self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._hear(params))
        self._run(self.client.start_io(sys.executable, "-m", "tile_lsp"))
        general = lsp.GeneralClientCapabilities(position_encodings=encodings) if encodings else None
        given = lsp.InitializeParams(capabilities=lsp.ClientCapabilities(general=general))
        self.server: lsp.InitializeResult = self._run(self.client.initialize_async(given))
        self.client.initialized(lsp.InitializedParams())
        self.versions: dict[str, int] = {}

    def _hear(self, params: lsp.PublishDiagnosticsParams) -> None:
        self.published[params.uri] = params
        self.told.set()

    def _run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, SECONDS))

    def write(self, uri: str, text: str, language: str = "tile") -> list[lsp.Diagnostic]:
        """Open a document, or change it; what the server says of it."""
        self.told.clear()
        version = self.versions[uri] = self.versions.get(uri, -1) + 1
        if version == 0:
            item = lsp.TextDocumentItem(uri, language, version, text)
            self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        else:
            change = lsp.TextDocumentContentChangeWholeDocument(text)
            document = lsp.VersionedTextDocumentIdentifier(version, uri)
            self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))
        while uri not in self.published or self.published[uri].version != version:
            self.told.clear()
            self._run(self.told.wait())
        return list(self.published[uri].diagnostics)

    def ask(self, request: str, params: Any) -> Any:
        """The answer to a request, by the name of pygls' method."""
        return self._run(getattr(self.client, f"{request}_async")(params))

    def close(self) -> int | None:
        """Say goodbye; the server's exit code."""
        self.ask("shutdown", None)
        self.client.exit(None)
        process = self.client._server  # pyright: ignore[reportPrivateUsage] - there is no public way to its exit code
        code = self._run(process.wait()) if process else None
        self._run(self.client.stop())
        self.loop.close()
        return code
