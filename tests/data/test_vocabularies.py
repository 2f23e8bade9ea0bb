"""Corpora and vocabularies of libraries, and fastText's lines, as files that their tools write."""

from __future__ import annotations

import gzip

import pytest
from command_line import run

from gandalf.data.export import export
from gandalf.data.formats import TableOptions
from gandalf.data.load import load
from gandalf.errors import DataError

CAT, DOG, OWL = "http://example.org/cat", "http://example.org/dog", "http://example.org/owl"
TEXTS = ["a purring animal", "it barks, at cats", "nothing"]
TARGETS = [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
NAMES = ["cats", "dogs", "owls"]

SUBJECTS = f"<{CAT}>\tcats\t599.75\n<{DOG}>\tdogs\n<{OWL}>\towls\n"
TURTLE = f"""@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
<{OWL}> a skos:Concept ; skos:prefLabel "owls"@en, "pöllöt"@fi .
<{CAT}> a skos:Concept ; skos:prefLabel "cats"@en, "kissat"@fi ;
   skos:altLabel "tabbies"@en, "felines"@en, "kisut"@fi .
<{DOG}> a skos:Concept ; skos:prefLabel "dogs"@en, "koirat"@fi ; skos:hiddenLabel "dosg"@en .
<http://example.org/old> a skos:Concept ; skos:prefLabel "old"@en ; owl:deprecated true .
<http://example.org/scheme> a skos:ConceptScheme ; skos:prefLabel "animals"@en .
"""
RDF = f"""<?xml version="1.0" encoding="utf-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="{CAT}"><skos:prefLabel xml:lang="en">cats</skos:prefLabel>
<skos:altLabel xml:lang="en">felines</skos:altLabel><skos:altLabel xml:lang="en">tabbies</skos:altLabel>
</skos:Concept>
<skos:Concept rdf:about="{DOG}"><skos:prefLabel xml:lang="en">dogs</skos:prefLabel></skos:Concept>
<skos:Concept rdf:about="{OWL}"><skos:prefLabel xml:lang="en">owls</skos:prefLabel></skos:Concept>
</rdf:RDF>
"""


def files(folder, content):
    for name, text in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def short_texts(mark):
    return f"{TEXTS[0]}\t<{CAT}>\n{TEXTS[1]}\t<{CAT}>{mark}<{DOG}>\n{TEXTS[2]}\t\n"


def one_csv(rows):
    return "text,subject_uris\n" + "".join(f'"{text}",{uris}\n' for text, uris in rows)


DOCUMENTS = {
    "train/a.txt": "a purring\nanimal\n",
    "train/a.key": "cats\n",
    "train/b.txt": "it barks,\r\nat cats",
    "train/b.tsv": f"<{DOG}>\tdogs\n<{CAT}>\tcats\n",
    "train/c.txt": "nothing",
    "train/c.key": "",
    "train/d.txt": "no labels were written for this one",
}
CORPORA = {
    "tabs": {"train.tsv": short_texts("\t")},
    "spaces": {"train.tsv": short_texts(" ")},
    "packed": {"train.tsv.gz": gzip.compress(short_texts(" ").encode())},
    "csv": {"train.csv": one_csv(zip(TEXTS, [f"<{CAT}>", f"<{CAT}> <{DOG}>", ""], strict=True))},
    "documents": DOCUMENTS,
    "flat documents": {name.removeprefix("train/"): text for name, text in DOCUMENTS.items()},
}
VOCABULARIES = {
    "subjects.tsv": SUBJECTS,
    "subjects.csv": "uri,label_en\n" + SUBJECTS.replace("\t599.75", "").replace("\t", ","),
    "vocabulary.ttl": TURTLE,
    "labels.rdf": RDF,
    "vocab.ttl.gz": gzip.compress(TURTLE.encode()),
}


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_corpus_with_every_vocabulary(corpus, vocabulary, tmp_path):
    if "subjects" not in vocabulary:
        pytest.importorskip("rdflib")
    files(tmp_path, CORPORA[corpus] | {vocabulary: VOCABULARIES[vocabulary]})
    asked = {"language": "en"} if "ttl" in vocabulary else {}
    found = load(tmp_path, **asked).train
    assert (found.texts, found.label_texts, found.label_ids) == (TEXTS, NAMES, [CAT, DOG, OWL])
    assert found.targets.toarray().tolist() == TARGETS
    others = None if "subjects" in vocabulary else [(0, "felines"), (0, "tabbies")]
    assert found.other_label_texts == others
    assert found.ids == (["a", "b", "c"] if "documents" in corpus else None)


def test_a_corpus_alone_names_labels_by_their_uris(tmp_path):
    files(tmp_path, {"corpus.tsv": short_texts(" "), "test.tsv": f"purr\t<{CAT}>\n"})
    found = load(tmp_path / "corpus.tsv", test=str(tmp_path / "test.tsv"))
    assert found.train.label_texts == [CAT, DOG] and found.test.targets.toarray().tolist() == [[1, 0]]


@pytest.mark.parametrize("name", ["vocabulary.ttl", "subjects.csv"])
def test_labels_are_read_in_the_language_that_is_chosen(name, tmp_path):
    pytest.importorskip("rdflib")
    table = "uri,label_fi,label_en\n" + "".join(
        f"<{uri}>,{fi},{en}\n"
        for uri, fi, en in zip((CAT, DOG, OWL), ("kissat", "koirat", "pöllöt"), NAMES, strict=True)
    )
    files(tmp_path, {"train.tsv": short_texts(" "), name: TURTLE if name.endswith("ttl") else table})
    found = load(tmp_path, language="fi").train
    assert found.label_texts == ["kissat", "koirat", "pöllöt"]
    assert found.other_label_texts == ([(0, "kisut")] if name.endswith("ttl") else None)
    with pytest.raises(DataError, match=rf"{name}: .*choose one with language=\.\.\."):
        load(tmp_path)
    with pytest.raises(DataError, match=rf"{name}: "):
        load(tmp_path, language="sv")
    result = run("stats", tmp_path, "--language", "fi", "--json")
    assert result.exit_code == 0, result.output


CHOICES = [
    ({"include": [CAT, "owls"]}, ["cats", "owls"], 1),
    ({"exclude": [f"<{DOG}>"]}, ["cats", "owls"], 1),
    ({"include": [CAT, DOG], "exclude": ["cats"]}, ["dogs"], 2),
    ({"exclude": []}, NAMES, 0),
]


@pytest.mark.parametrize(("asked", "names", "left_out"), CHOICES)
@pytest.mark.parametrize("in_files", [True, False])
def test_labels_are_included_and_excluded(asked, names, left_out, in_files, tmp_path):
    folder = files(tmp_path / "set", {"train.tsv": short_texts(" "), "subjects.tsv": SUBJECTS})
    if in_files:
        for name, lines in asked.items():
            files(tmp_path, {name: "".join(f"{line}\tand more\n" for line in lines)})
        asked = {name: tmp_path / name for name in asked}
    found = load(folder, **asked)
    assert found.train.label_texts == names
    columns = [NAMES.index(name) for name in names]
    assert found.train.targets.toarray().tolist() == [[row[at] for at in columns] for row in TARGETS]
    notes = [str(note) for note in found.findings if note.kind == "left-out-label"]
    assert len(notes) == bool(left_out) and all(f"{left_out} label" in note for note in notes)


def test_other_texts_follow_the_labels_that_are_left(tmp_path):
    pytest.importorskip("rdflib")
    files(tmp_path, {"train.tsv": short_texts(" "), "vocab.ttl": TURTLE.replace('"tabbies"@en, ', "")})
    found = load(tmp_path, language="en", exclude=[DOG]).train
    assert found.label_texts == ["cats", "owls"] and found.other_label_texts == [(0, "felines")]
    points = files(tmp_path / "set", {"train.csv": "text,labels\na,1;2\n", "labels.txt": "x\ny\nz\n"})
    found = load(points, exclude=["x"]).train  # the points count the lines of the whole file
    assert found.label_texts == ["y", "z"] and found.targets.toarray().tolist() == [[1, 1]]


BAD = {
    "no uri": (
        {"train.tsv": f"a\t<{CAT}>\nb\tcats\n"},
        {},
        r"train\.tsv:2: 'cats' is not a list of URIs",
    ),
    "unknown uri": (
        {"train.tsv": f"a\t<{CAT}>\nb\t<http://x>\n", "subjects.tsv": SUBJECTS},
        {},
        r"train\.tsv:2: label 'http://x' is not in .*subjects\.tsv; add it there",
    ),
    "subject": (
        {"train.tsv": short_texts(" "), "subjects.tsv": SUBJECTS + "cows\n"},
        {},
        r"subjects\.tsv:4: 'cows' is not a subject; write <URI>",
    ),
    "twice": ({"train.tsv": short_texts(" "), "subjects.tsv": SUBJECTS * 2}, {}, "stands for two labels"),
    "key": (
        {"train/a.txt": "x", "train/a.key": "cows\n", "subjects.tsv": SUBJECTS},
        {},
        r"a\.key:1: label 'cows' is not in .*subjects\.tsv",
    ),
    "key as tsv": (
        {"train/a.txt": "x", "train/a.tsv": "cows\tcow\n"},
        {},
        r"a\.tsv:1: 'cows' is not a URI",
    ),
    "turtle": (
        {"train.tsv": short_texts(" "), "vocab.ttl": TURTLE + "<oops\n"},
        {"language": "en"},
        r"vocab\.ttl:\d+: cannot be read as RDF \(.*\); correct the file",
    ),
    "xml": (
        {"train.tsv": short_texts(" "), "vocab.rdf": RDF[:400]},
        {},
        r"vocab\.rdf:\d+: cannot be read as RDF \(.*\); correct the file",
    ),
    "no concept": (
        {"train.tsv": short_texts(" "), "vocab.ttl": "<a:a> <a:b> <a:c> .\n"},
        {},
        r"vocab\.ttl: there is no concept with a label; give a vocabulary",
    ),
    "no file": (
        {"train.tsv": short_texts(" ")},
        {"exclude": [CAT]},
        r"has no label file for exclude=\.\.\. to",
    ),
    "no list": (
        {"train.tsv": short_texts(" "), "subjects.tsv": SUBJECTS},
        {"include": "nothing.txt"},
        r"nothing\.txt: does not exist, and include=\.\.\. names a file",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_sentence(name, tmp_path):
    content, asked, said = BAD[name]
    if any("vocab" in each for each in content):
        pytest.importorskip("rdflib")
    with pytest.raises(DataError, match=said) as caught:
        load(files(tmp_path, content), **asked)
    assert "\n" not in str(caught.value)


def test_a_name_that_no_label_has_is_told_of(tmp_path):
    files(tmp_path, {"train.tsv": short_texts(" "), "subjects.tsv": SUBJECTS, "no.lst": f"{CAT}\ncows\n"})
    (warning,) = [p for p in load(tmp_path, exclude=tmp_path / "no.lst").findings if p.severity == "warning"]
    assert warning.kind == "unknown-listed-label" and "no.lst:2: 'cows' is not a label of " in str(warning)


def test_without_rdflib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rdflib", None)
    files(tmp_path, {"train.tsv": short_texts(" "), "vocab.ttl": TURTLE})
    with pytest.raises(DataError, match=r"vocab\.ttl: reading SKOS needs rdflib; pip install"):
        load(tmp_path, language="en")


# ---- fastText

LINES = "__label__hot-drinks __label__tea which leaves keep?\nno label here\nmilk first __label__tea\n\n"


@pytest.mark.parametrize("name", ["train.txt", "cooking.txt", "cooking.train", "train.txt.gz"])
def test_lines_of_fasttext(name, tmp_path):
    if name == "cooking.train":
        name = "cooking"  # without a suffix
    files(tmp_path, {name: gzip.compress(LINES.encode()) if name.endswith("gz") else LINES})
    sources = [tmp_path / name] + ([tmp_path] if name.startswith("train") else [])
    for source in sources:
        found = load(source).train
        assert found.texts == ["which leaves keep?", "no label here", "milk first"]
        assert found.label_texts == ["hot-drinks", "tea"]
        assert found.targets.toarray().tolist() == [[1, 1], [0, 0], [0, 1]]


def test_what_is_written_for_fasttext_is_read_back(tmp_path):
    man = load("man")
    export(man, tmp_path / "out", "fasttext")
    found = load(tmp_path / "out")
    assert (found.train.targets != man.train.targets).nnz == 0
    assert (found.test.exclude != man.test.exclude).nnz == 0
    assert found.train.label_texts[:100] == man.train.label_texts[:100]


def test_a_label_of_fasttext_that_is_not_in_the_label_file(tmp_path):
    files(tmp_path, {"train.txt": "__label__0 a\n__label__7 b\n", "labels.txt": "x\ny\n"})
    with pytest.raises(DataError, match=r"train\.txt:2: label '7' is not in .*labels\.txt; add it there"):
        load(tmp_path, options=TableOptions())
