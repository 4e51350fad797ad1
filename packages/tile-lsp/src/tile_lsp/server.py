"""The server: what an editor asks, answered from the documents that it has open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from tile_ir.diagnostics import Diagnostic, Severity

from tile_lsp import __version__, outline
from tile_lsp.calls import signature
from tile_lsp.completion import Suggestion, suggestions
from tile_lsp.document import Analysis, Document
from tile_lsp.edits import Edit, formatted, mends
from tile_lsp.hover import hover
from tile_lsp.names import Occurrence, Role
from tile_lsp.renaming import Refused, renamable, renamed

NAME = "tile-lsp"
_SYMBOLS = {
    Role.FUNCTION: lsp.SymbolKind.Function, Role.INPUT: lsp.SymbolKind.Variable, Role.TENSOR: lsp.SymbolKind.Array,
}  # fmt: skip
_COMPLETIONS = {
    Role.FUNCTION: lsp.CompletionItemKind.Function, Role.INPUT: lsp.CompletionItemKind.Variable,
    Role.TENSOR: lsp.CompletionItemKind.Variable, Role.SIZE: lsp.CompletionItemKind.TypeParameter,
    Role.INDEX: lsp.CompletionItemKind.Property, Role.BORDER: lsp.CompletionItemKind.Keyword,
    Role.ATTRIBUTE: lsp.CompletionItemKind.Keyword,
}  # fmt: skip


class Server(LanguageServer):
    """A language server with the documents that are open."""

    def __init__(self) -> None:
        # The whole text each time: where its lines end is a question that Python and editors answer differently.
        whole = lsp.TextDocumentSyncKind.Full
        super().__init__(NAME, __version__, whole)  # pyright: ignore[reportUnknownMemberType] - keywords without types
        self.documents: dict[str, Document] = {}
        for name, (handler, options) in FEATURES.items():
            self.feature(name, options)(_bound(self, handler))

    @property
    def encoding(self) -> str:
        """How the editor counts characters."""
        return lsp.PositionEncodingKind(self.workspace.position_encoding or "utf-16").value

    def update(self, uri: str, text: str, version: int | None) -> None:
        """Take the new text of a document, and tell what is wrong with it."""
        document = self.documents[uri]
        document.update(text, self.encoding)
        found = [_diagnostic(document, t, d) for t in document.texts for d in t.diagnostics]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))


def _bound(server: Server, handler: Callable[[Server, Any], Any]) -> Callable[[Any], Any]:
    def handle(params: Any) -> Any:
        return handler(server, params)

    return handle


# --- places --------------------------------------------------------------------------------------


def _position(document: Document, offset: int) -> lsp.Position:
    return lsp.Position(*document.lines.position(offset))


def _range(document: Document, start: int, end: int) -> lsp.Range:
    return lsp.Range(_position(document, start), _position(document, end))


def _range_of(document: Document, text: Analysis, one: Occurrence) -> lsp.Range:
    return _range(document, text.start + one.start, text.start + one.end)


def _place(server: Server, params: Any) -> tuple[Document, Analysis, int] | None:
    """The document of a request, the Tile text at its position, and the place in that."""
    document = server.documents.get(params.text_document.uri)
    if document is None:
        return None
    offset = document.lines.offset(params.position.line, params.position.character)
    text = document.at(offset)
    return None if text is None else (document, text, offset - text.start)


def _named(server: Server, params: Any) -> tuple[Document, Analysis, Occurrence] | None:
    """The same with the name that stands there."""
    place = _place(server, params)
    one = place[1].names.at(place[2]) if place else None
    return (place[0], place[1], one) if place and one else None


# --- documents -----------------------------------------------------------------------------------


def _opened(server: Server, params: lsp.DidOpenTextDocumentParams) -> None:
    given = params.text_document
    server.documents[given.uri] = Document(given.uri, str(given.language_id))
    server.update(given.uri, given.text, given.version)


def _changed(server: Server, params: lsp.DidChangeTextDocumentParams) -> None:
    given = params.text_document
    if given.uri in server.documents:
        server.update(given.uri, params.content_changes[-1].text, given.version)


def _closed(server: Server, params: lsp.DidCloseTextDocumentParams) -> None:
    uri = params.text_document.uri
    if server.documents.pop(uri, None) is not None:
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))


def _diagnostic(document: Document, text: Analysis, found: Diagnostic) -> lsp.Diagnostic:
    start, end = (
        (text.start + found.span.start, text.start + found.span.end) if found.span else (text.start, text.start)
    )
    notes = [
        lsp.DiagnosticRelatedInformation(
            lsp.Location(document.uri, _range(document, text.start + n.span.start, text.start + n.span.end)), n.message
        )
        for n in found.notes
        if n.span is not None
    ]
    severity = lsp.DiagnosticSeverity.Error if found.severity is Severity.ERROR else lsp.DiagnosticSeverity.Warning
    message = f"{found.message}\nhint: {found.hint}" if found.hint else found.message
    return lsp.Diagnostic(
        _range(document, start, end),
        message,
        severity,
        code=found.code,
        source="tile",
        related_information=notes or None,
    )


# --- requests ------------------------------------------------------------------------------------


def _hover(server: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    place = _place(server, params)
    if place is None:
        return None
    document, text, offset = place
    shown = hover(text, offset)
    if shown is None:
        return None
    content = lsp.MarkupContent(lsp.MarkupKind.Markdown, shown.text)
    return lsp.Hover(content, _range(document, text.start + shown.start, text.start + shown.end))


def _definition(server: Server, params: lsp.DefinitionParams) -> list[lsp.Location]:
    found = _named(server, params)
    if found is None:
        return []
    document, text, one = found
    return [lsp.Location(document.uri, _range_of(document, text, o)) for o in text.names.definitions(one)]


def _references(server: Server, params: lsp.ReferenceParams) -> list[lsp.Location]:
    found = _named(server, params)
    if found is None:
        return []
    document, text, one = found
    wanted = (o for o in text.names.same(one) if params.context.include_declaration or not o.defines)
    return [lsp.Location(document.uri, _range_of(document, text, o)) for o in wanted]


def _highlight(server: Server, params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
    found = _named(server, params)
    if found is None:
        return []
    document, text, one = found
    kinds = {True: lsp.DocumentHighlightKind.Write, False: lsp.DocumentHighlightKind.Read}
    return [lsp.DocumentHighlight(_range_of(document, text, o), kinds[o.defines]) for o in text.names.same(one)]


def _prepare_rename(server: Server, params: lsp.PrepareRenameParams) -> lsp.Range | None:
    found = _named(server, params)
    if found is None:
        return None
    document, text, one = found
    try:
        renamable(text.names, one)
    except Refused as reason:
        raise _refusal(reason) from None
    return _range_of(document, text, one)


def _rename(server: Server, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    found = _named(server, params)
    if found is None:
        return None
    document, text, one = found
    try:
        places = renamed(text.names, one, params.new_name)
    except Refused as reason:
        raise _refusal(reason) from None
    edits = [lsp.TextEdit(_range_of(document, text, o), params.new_name) for o in places]
    return lsp.WorkspaceEdit({document.uri: edits})


def _refusal(reason: Refused) -> Exception:
    from pygls.exceptions import JsonRpcInvalidParams

    return JsonRpcInvalidParams(str(reason))


def _edit(document: Document, text: Analysis, edit: Edit) -> lsp.TextEdit:
    return lsp.TextEdit(_range(document, text.start + edit.start, text.start + edit.end), edit.text)


def _formatting(server: Server, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    document = server.documents.get(params.text_document.uri)
    if document is None or document.is_python:  # how strings of Python are indented is not ours to say
        return []
    return [_edit(document, text, e) for text in document.texts for e in formatted(text.text)]


def _actions(server: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    document = server.documents.get(params.text_document.uri)
    return [] if document is None else list(_mends(document, params.range))


def _mends(document: Document, wanted: lsp.Range) -> Iterator[lsp.CodeAction]:
    first = document.lines.offset(wanted.start.line, wanted.start.character)
    last = document.lines.offset(wanted.end.line, wanted.end.character)
    for text in document.texts:
        for found in text.diagnostics:
            if found.span is None or text.start + found.span.start > last or text.start + found.span.end < first:
                continue
            for title, edit in mends(found):
                change = lsp.WorkspaceEdit({document.uri: [_edit(document, text, edit)]})
                shown = _diagnostic(document, text, found)
                yield lsp.CodeAction(title, lsp.CodeActionKind.QuickFix, [shown], True, edit=change)


def _completion(server: Server, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
    place = _place(server, params)
    return [_item(s) for s in suggestions(place[1], place[2])] if place else []


def _item(one: Suggestion) -> lsp.CompletionItem:
    shown = lsp.MarkupContent(lsp.MarkupKind.Markdown, one.says) if one.says else None
    kind = _COMPLETIONS[one.role] if one.role else lsp.CompletionItemKind.Keyword
    return lsp.CompletionItem(one.name, kind=kind, detail=one.detail or None, documentation=shown)


def _signature_help(server: Server, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
    place = _place(server, params)
    found = signature(place[1], place[2]) if place else None
    if found is None:
        return None
    parameters = [lsp.ParameterInformation(found.label[a:b]) for a, b in found.parameters]
    shown = lsp.SignatureInformation(found.label, found.says or None, parameters, found.active)
    return lsp.SignatureHelp([shown], 0, found.active)


def _inlay_hints(server: Server, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    document = server.documents.get(params.text_document.uri)
    if document is None:
        return []
    first = document.lines.offset(params.range.start.line, params.range.start.character)
    last = document.lines.offset(params.range.end.line, params.range.end.character)
    found = ((t.start + place, shown) for t in document.texts for place, shown in outline.hints(t))
    return [
        lsp.InlayHint(_position(document, place), shown, lsp.InlayHintKind.Type)
        for place, shown in found
        if first <= place <= last
    ]


def _document_symbols(server: Server, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    document = server.documents.get(params.text_document.uri)
    if document is None:
        return []
    return [_symbol(document, text, s) for text in document.texts for s in outline.symbols(text)]


def _symbol(document: Document, text: Analysis, one: outline.Symbol) -> lsp.DocumentSymbol:
    shift = text.start
    return lsp.DocumentSymbol(
        one.name,
        _SYMBOLS[one.role],
        _range(document, shift + one.start, shift + one.end),
        _range(document, shift + one.name_start, shift + one.name_end),
        detail=one.detail,
        children=[_symbol(document, text, c) for c in one.children],
    )


def _tokens(server: Server, params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
    document = server.documents.get(params.text_document.uri)
    texts = document.texts if document else []
    found = chain.from_iterable(((t.start, c) for c in outline.colours(t)) for t in texts)
    data: list[int] = []
    line = unit = 0
    for shift, one in found:
        assert document is not None
        shown = document.lines.text[shift + one.start : shift + one.end]
        if "\n" not in shown:
            at, first = document.lines.position(shift + one.start)
            width = document.lines.units(shown)
            data += (at - line, first - unit if at == line else first, width, one.kind, one.modifiers)
            line, unit = at, first
    return lsp.SemanticTokens(data)


_LEGEND = lsp.SemanticTokensLegend([*outline.TYPES], [*outline.MODIFIERS])

FEATURES: dict[str, tuple[Callable[[Server, Any], Any], Any]] = {
    lsp.TEXT_DOCUMENT_DID_OPEN: (_opened, None),
    lsp.TEXT_DOCUMENT_DID_CHANGE: (_changed, None),
    lsp.TEXT_DOCUMENT_DID_CLOSE: (_closed, None),
    lsp.TEXT_DOCUMENT_HOVER: (_hover, None),
    lsp.TEXT_DOCUMENT_DEFINITION: (_definition, None),
    lsp.TEXT_DOCUMENT_REFERENCES: (_references, None),
    lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: (_highlight, None),
    lsp.TEXT_DOCUMENT_PREPARE_RENAME: (_prepare_rename, None),
    lsp.TEXT_DOCUMENT_RENAME: (_rename, lsp.RenameOptions(prepare_provider=True)),
    lsp.TEXT_DOCUMENT_FORMATTING: (_formatting, None),
    lsp.TEXT_DOCUMENT_CODE_ACTION: (_actions, lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix])),
    lsp.TEXT_DOCUMENT_COMPLETION: (_completion, lsp.CompletionOptions()),
    lsp.TEXT_DOCUMENT_SIGNATURE_HELP: (_signature_help, lsp.SignatureHelpOptions(["(", ","])),
    lsp.TEXT_DOCUMENT_INLAY_HINT: (_inlay_hints, None),
    lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL: (_document_symbols, None),
    lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: (_tokens, _LEGEND),
}
"""What answers each request and notification, and what the server says about it."""
