"""Read SKOS vocabularies: concepts with a preferred label and alternative labels in each language."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.parsers import expat
from xml.sax import SAXException

from gandalf.data.compression import read_chunks
from gandalf.data.files import plain_name
from gandalf.data.formats.texts import LabelTexts, report_similar_texts
from gandalf.errors import DataError, Findings, argument

ENTITY = 200  # characters that an entity of RDF/XML may stand for: many times a namespace
SUFFIXES = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".nt": "nt"}


def recognise(path: Path) -> bool:
    """Return True if the file has a suffix of RDF."""
    return Path(plain_name(path)).suffix.lower() in SUFFIXES


def read(path: Path, findings: Findings, language: str | None) -> tuple[LabelTexts, list[str], set[str]]:
    """Return the labels in a language, their URIs, and the URIs of concepts without a label in it.

    The preferred label is the label text, and alternative labels are other label texts. Deprecated concepts
    are left out. Labels are sorted by URI, because RDF has no order.
    """
    from rdflib.namespace import OWL, RDF, SKOS

    graph = _parsed(path)
    all_concepts = set(graph.subjects(RDF.type, SKOS.Concept))
    concepts = {each for each in all_concepts if not _is_true(graph, each, OWL.deprecated)}
    named: dict[str, dict[str, str]] = {}
    for concept in concepts:
        names = sorted(graph.objects(concept, SKOS.prefLabel), reverse=True)
        named[str(concept)] = {str(name.language or ""): str(name) for name in names}
    language = _language(language, named, path)
    texts, ids = LabelTexts(path, findings), []
    by_uri = {str(concept): concept for concept in concepts}
    for uri in sorted(uri for uri, names in named.items() if language in names):
        others = graph.objects(by_uri[uri], SKOS.altLabel)
        more = sorted(str(other) for other in others if str(other.language or "") == language)
        texts.add_label(named[uri][language], more, 1)
        ids.append(uri)
    report_similar_texts(texts.cleaned, findings, None)
    return texts, ids, set(map(str, all_concepts)) - set(ids)


def _is_true(graph: Any, subject: Any, predicate: Any) -> bool:  # noqa: ANN401  of an extra
    return any(str(value) in ("true", "1") for value in graph.objects(subject, predicate))


def _language(asked: str | None, named: dict[str, dict[str, str]], path: Path) -> str:
    """Return the chosen language, or the only one."""
    found = sorted({language for names in named.values() for language in names})
    if asked in found or (asked is None and len(found) == 1):
        return found[0] if asked is None else asked
    if not found:
        remedy = "give a vocabulary with concepts that have a skos:prefLabel"
        raise DataError("there is no concept with a label", remedy=remedy, file=path, kind="empty-file")
    shown = ", ".join(language or "none" for language in found)
    none = "" if asked is None else f"there is no label in '{asked}': "
    what = f"{none}labels are in {shown}"
    raise DataError(
        what, remedy=f"choose one with {argument('language')}", file=path, kind="missing-label-text"
    )


def _parsed(path: Path) -> Any:  # noqa: ANN401  of an extra
    try:
        import rdflib
        from rdflib.exceptions import ParserError
    except ImportError as error:
        remedy = "pip install 'gandalf-xmc[skos]'"
        raise DataError("reading SKOS needs rdflib", file=path, remedy=remedy) from error
    content = b"".join(read_chunks(path, 1 << 20))
    try:
        kind = SUFFIXES[Path(plain_name(path)).suffix.lower()]
        if kind == "xml":
            _refuse_expanding(content, path)
        return rdflib.Graph().parse(data=content, format=kind)
    except (ParserError, SAXException, SyntaxError, ValueError) as error:
        remedy = "correct the file, or convert it again"
        what = f"cannot be read as RDF ({next(_reasons(error), type(error).__name__)})"
        raise DataError(what, remedy=remedy, file=path, line=_line(error), kind="bad-line") from error


def _refuse_expanding(content: bytes, path: Path) -> None:
    """Refuse entities that stand for other entities or for long texts: a small file could grow enormous."""

    def declared(name: str, _parameter: bool, value: str | None, *_rest: object) -> None:
        if value is not None and ("&" in value or len(value) > ENTITY):
            what = f"the entity {name!r} stands for other entities, or for more than {ENTITY} characters"
            remedy = "write the texts themselves, or convert the file to Turtle"
            raise DataError(what, remedy=remedy, file=path, line=parser.CurrentLineNumber, kind="too-large")

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = declared
    with suppress(expat.ExpatError):  # which is told when the file is read
        parser.Parse(content, True)


def _reasons(error: Exception) -> Iterator[str]:
    said = getattr(error, "_why", None) or getattr(error, "getMessage", lambda: str(error))()
    yield from (part for part in str(said).splitlines() if part)


def _line(error: Exception) -> int | None:
    line = getattr(error, "getLineNumber", lambda: None)()
    before = getattr(error, "lines", None)  # for Turtle: the number of lines before the error
    return int(before) + 1 if isinstance(before, int) else line
