"""The server, asked by a real client over standard input and output."""

from __future__ import annotations

import pytest
from client import Editor
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

URI = "file:///work/matmul.tile"
MATMUL = """// a product 😀
function twice(X) -> (Y) { Y = X * 2; }
function (A[M, L], B[L, N]) -> (C) {
    P[i, j : M, N] = +(A[i, k] * B[k, j]);  // 😀 P
    C = exp(twice(P));
}
"""


def place(text: str, what: str, nth: int = 0, shift: int = 0) -> lsp.Position:
    """Where the nth occurrence of a word is, in lines and UTF-16 units."""
    at = -1
    for _ in range(nth + 1):
        at = text.index(what, at + 1)
    before = text[: at + shift]
    return lsp.Position(before.count("\n"), len(before.rpartition("\n")[2].encode("utf-16-le")) // 2)


def at(what: str, nth: int = 0, text: str = MATMUL, uri: str = URI) -> dict[str, object]:
    return {"text_document": lsp.TextDocumentIdentifier(uri), "position": place(text, what, nth)}


def written(text: str, found: lsp.Range) -> str:
    """The text in a range that an editor is told."""
    lines = text.split("\n")
    assert found.start.line == found.end.line
    units = lines[found.start.line].encode("utf-16-le")
    return units[2 * found.start.character : 2 * found.end.character].decode("utf-16-le")


def test_what_the_server_can(editor: Editor) -> None:
    can = editor.server.capabilities
    assert (
        can.hover_provider and can.definition_provider and can.references_provider and can.document_formatting_provider
    )
    assert can.semantic_tokens_provider and can.completion_provider and can.document_symbol_provider
    assert can.position_encoding == "utf-16"


def test_mistakes_as_you_type(editor: Editor) -> None:
    assert editor.write(URI, MATMUL) == []
    (found,) = editor.write(URI, MATMUL.replace("exp(twice", "/* 😀 */ expp(twice"))
    assert found.code == "TILE-E002"
    broken = MATMUL.replace("P[i, j : M, N]", "P[i, j : M, 😀]")
    (found,) = editor.write(URI, broken)
    assert written(broken, found.range) == "😀"
    unknown = MATMUL.replace("exp(", "expp(").replace("// a product", "// a product 😀😀")
    (found,) = editor.write(URI, unknown)
    assert (found.code, found.source, written(unknown, found.range)) == ("TILE-E114", "tile", "expp")
    assert "did you mean exp?" in found.message
    assert editor.write(URI, MATMUL) == []


def test_a_second_place_is_told(editor: Editor) -> None:
    uri = "file:///twice.tile"
    (found,) = editor.write(uri, "function (A) -> (B) { B = A; B = A; }")
    assert found.related_information and found.related_information[0].location.range.start.character == 22


def test_stated_shapes_are_checked(editor: Editor) -> None:
    uri = "file:///stated.tile"
    text = "// shapes: A=[3] B=[4]\nfunction (A, B) -> (C) { C = A + B; }"
    assert [d.code for d in editor.write(uri, text)] == ["TILE-E118"]
    assert [d.code for d in editor.write(uri, text.replace("[4]", "[?]"))] == ["TILE-W153"]


def test_a_document_that_is_closed_has_no_mistakes(editor: Editor) -> None:
    uri = "file:///gone.tile"
    assert editor.write(uri, "function")
    editor.told.clear()
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(uri)))
    editor._run(editor.told.wait())  # pyright: ignore[reportPrivateUsage]
    assert not editor.published[uri].diagnostics
    del editor.versions[uri]


def hovered(editor: Editor, what: str, nth: int = 0) -> str:
    editor.write(URI, MATMUL)
    found = editor.ask("text_document_hover", lsp.HoverParams(**at(what, nth)))  # type: ignore[arg-type]
    return found.contents.value if found else ""


@pytest.mark.parametrize(
    ("what", "nth", "parts"),
    [
        ("P", 0, ["P[M, N]", "P[i, j : M, N] = +(A[i, k] * B[k, j]);", "over k, for every i and j"]),
        ("A", 0, ["A[M, L]", "an input"]),
        ("L", 0, ["the size L"]),
        ("k", 0, ["0 <= k < L"]),
        ("i, j", 0, ["0 <= i < M", "an index of the result"]),
        ("exp", 0, ["exp(x)", "e to the power of x"]),
        ("twice", 1, ["function twice(X) -> (Y)"]),
        ("+(", 0, ["sum"]),
        ("* B", 0, ["a * b"]),
    ],
)
def test_hover(editor: Editor, what: str, nth: int, parts: list[str]) -> None:
    text = hovered(editor, what, nth)
    assert all(part in text for part in parts), text


def test_nothing_is_said_of_blanks(editor: Editor) -> None:
    assert hovered(editor, "// a") == ""


def test_definitions_and_references(editor: Editor) -> None:
    editor.write(URI, MATMUL)
    (found,) = editor.ask("text_document_definition", lsp.DefinitionParams(**at("P)")))  # type: ignore[arg-type]
    assert found.range.start == place(MATMUL, "P[")
    (found,) = editor.ask("text_document_definition", lsp.DefinitionParams(**at("twice", 1)))  # type: ignore[arg-type]
    assert found.range.start == place(MATMUL, "twice")
    assert len(editor.ask("text_document_definition", lsp.DefinitionParams(**at("L", 0)))) == 2  # type: ignore[arg-type]
    context = lsp.ReferenceContext(include_declaration=False)
    found = editor.ask("text_document_references", lsp.ReferenceParams(context=context, **at("M, L")))  # type: ignore[arg-type]
    assert [f.range.start for f in found] == [place(MATMUL, "M, N]")]
    found = editor.ask("text_document_document_highlight", lsp.DocumentHighlightParams(**at("k", 0)))  # type: ignore[arg-type]
    assert len(found) == 2


def test_renaming(editor: Editor) -> None:
    editor.write(URI, MATMUL)
    changed = editor.ask("text_document_rename", lsp.RenameParams(new_name="Product", **at("P")))  # type: ignore[arg-type]
    assert [e.new_text for e in changed.changes[URI]] == ["Product", "Product"]
    found = editor.ask("text_document_prepare_rename", lsp.PrepareRenameParams(**at("P")))  # type: ignore[arg-type]
    assert written(MATMUL, found) == "P"
    with pytest.raises(JsonRpcException, match="A has a meaning here already"):
        editor.ask("text_document_rename", lsp.RenameParams(new_name="A", **at("P")))  # type: ignore[arg-type]
    with pytest.raises(JsonRpcException, match="exp is not defined in this text"):
        editor.ask("text_document_prepare_rename", lsp.PrepareRenameParams(**at("exp")))  # type: ignore[arg-type]


def test_formatting(editor: Editor) -> None:
    uri = "file:///loose.tile"
    editor.write(uri, "// 😀\nfunction (A) -> (B) {\n  B=A; // 😀\n}\n")
    options = lsp.FormattingOptions(4, True)
    given = lsp.DocumentFormattingParams(lsp.TextDocumentIdentifier(uri), options)
    (edit,) = editor.ask("text_document_formatting", given)
    assert edit.new_text == "    B = A;  // 😀\n" and edit.range == lsp.Range(lsp.Position(2, 0), lsp.Position(3, 0))
    editor.write(uri, "function (A) -> (B) { B= }")
    assert not editor.ask("text_document_formatting", given)


def test_a_hint_is_a_mend(editor: Editor) -> None:
    uri = "file:///mend.tile"
    text = "function (Alpha) -> (B) { B = Alhpa; }"
    (found,) = editor.write(uri, text)
    given = lsp.CodeActionParams(lsp.TextDocumentIdentifier(uri), found.range, lsp.CodeActionContext([found]))
    (action,) = editor.ask("text_document_code_action", given)
    assert action.title == "Change to Alpha" and action.edit.changes[uri][0].new_text == "Alpha"


def test_completion(editor: Editor) -> None:
    text = "function (A[M, L], B[L, N]) -> (C) { P[i, j : M, N] = +(A[i, k] * B[]); C = P; }"
    uri = "file:///more.tile"
    editor.write(uri, text)

    def offered(what: str) -> dict[str, lsp.CompletionItem]:
        given = {"text_document": lsp.TextDocumentIdentifier(uri), "position": place(text, what, 0, len(what))}
        return {i.label: i for i in editor.ask("text_document_completion", lsp.CompletionParams(**given))}

    inside, outside = offered("* B["), offered("C = ")
    assert {"i", "j", "k", "M", "clamp"} <= inside.keys() and "exp" not in inside
    assert {"A", "P", "M", "exp", "top_k"} <= outside.keys() and "i" not in outside
    assert outside["exp"].detail == "exp(x)"


def test_the_argument_in_hand(editor: Editor) -> None:
    text = "function f(X[N], Y) -> (Z) { Z = X; }\nfunction (A[N]) -> (B) { B = clamp(f(A, exp(A)), (0 + 1), 2) + reshape(A, 2, 3, 4); }"
    uri = "file:///calls.tile"
    editor.write(uri, text)

    def helped(what: str) -> tuple[str, str] | None:
        given = {"text_document": lsp.TextDocumentIdentifier(uri), "position": place(text, what, 0, len(what))}
        found = editor.ask("text_document_signature_help", lsp.SignatureHelpParams(**given))
        return found and (found.signatures[0].label, found.signatures[0].parameters[found.active_parameter].label)

    assert helped("clamp(") == ("clamp(x, low, high)", "x")
    assert helped("clamp(f(") == ("f(X[N], Y)", "X[N]")
    assert helped("f(A, e") == ("f(X[N], Y)", "Y")
    assert helped("exp(") == ("exp(x)", "x")
    assert helped("(0 + ") == ("clamp(x, low, high)", "low")
    assert helped("A, 2, 3, 4") == ("reshape(x, sizes…)", "sizes…")
    assert helped("B = ") is None


def test_shapes_beside_names(editor: Editor) -> None:
    text = "function (A[M, N], U) -> (D) { B = A * 2; C[i : M] = +(B[i, j]); D = C > 0; E = U; }"
    uri = "file:///hints.tile"
    editor.write(uri, text)
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(9, 0))
    found = editor.ask("text_document_inlay_hint", lsp.InlayHintParams(lsp.TextDocumentIdentifier(uri), whole))
    assert [(f.position.character, f.label) for f in found] == [
        (text.index("B =") + 1, "[M, N]"),
        (text.index("D =") + 1, "bool[M]"),
    ]


def test_the_outline(editor: Editor) -> None:
    editor.write(URI, MATMUL)
    given = lsp.DocumentSymbolParams(lsp.TextDocumentIdentifier(URI))
    one, own = editor.ask("text_document_document_symbol", given)
    assert (one.name, own.name) == ("twice", "function")
    assert [(c.name, c.detail) for c in own.children] == [
        ("A", "[M, L]"),
        ("B", "[L, N]"),
        ("P", "[M, N]"),
        ("C", "[M, N]"),
    ]


def test_every_token_has_its_colour(editor: Editor) -> None:
    editor.write(URI, MATMUL)
    found = editor.ask("text_document_semantic_tokens_full", lsp.SemanticTokensParams(lsp.TextDocumentIdentifier(URI)))
    legend = editor.server.capabilities.semantic_tokens_provider.legend.token_types
    line = unit = 0
    seen: list[tuple[str, str]] = []
    for k in range(0, len(found.data), 5):
        down, along, length, kind, _ = found.data[k : k + 5]
        line, unit = line + down, along + (0 if down else unit)
        shown = written(MATMUL, lsp.Range(lsp.Position(line, unit), lsp.Position(line, unit + length)))
        seen.append((shown, legend[kind]))
    assert seen[0] == ("// a product 😀", "comment") and seen[1] == ("function", "keyword")
    assert {("A", "parameter"), ("P", "variable"), ("L", "typeParameter"), ("k", "property"), ("exp", "function"),
            ("// 😀 P", "comment"), ("2", "number"), ("->", "operator")} <= set(seen)  # fmt: skip


PYTHON = '''import tile_runtime as tile

"""A docstring about a function (A) of ours."""
blur = tile.Function("""
function (A[N]) -> (B) { B = A + é; }
""")  # function (A) -> (B) { B = ; }
other = r"""function (A[N]) -> (C) { C = A + Q; }"""
skipped = "function (A) -> (B)\\n { B = ; }"
'''


def test_tile_in_strings_of_python(editor: Editor) -> None:
    uri = "file:///work/model.py"
    found = editor.write(uri, PYTHON, "python")
    assert [(d.code, written(PYTHON, d.range)) for d in found] == [("TILE-E002", "é"), ("TILE-E101", "Q")]
    assert editor.write(uri, PYTHON.replace("é", "1").replace("Q", "2"), "python") == []
    shown = editor.ask("text_document_hover", lsp.HoverParams(**at("C = A", 0, PYTHON, uri)))  # type: ignore[arg-type]
    assert "C[N]" in shown.contents.value
