"""The model card: what a model is, what it was made from, how well it does, and what it is not for."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from typing import Any

from gandalf.data.sentences import counted
from gandalf.model.part import Part

FIGURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "C@1", "C@5", "MRR")
PARTS = {"label_text": "text is a label's", "new_text": "new text"}

_CALIBRATED = "Scores are probabilities, calibrated on points held out of the training data."
_UNCALIBRATED = "Scores are sigmoids of the model's output. They rank; they are not calibrated probabilities."


def model_card(model: Part, metrics: Mapping[str, Any] | None) -> str:
    """A README for the model's folder, from its config and its figures on the test split."""
    system = str(model.config.get("system", "model"))
    data = _name_of_data(model.config)
    about = f", trained on {data}" if data else ""
    sections = (
        _header(system, data, metrics),
        f"# {system}{about}",
        f"Predicts which of {model.num_labels:,} labels a short text has. Made with gandalf: {model.about}",
        _USE,
        "## Scores\n\n" + (_UNCALIBRATED if model.calibration is None else _CALIBRATED),
        _figures(metrics),
        _since(metrics),
        _added(model.config),
        _limits(model),
        "## Recipe\n\n`config.json` holds every setting, defaults included.\n\n"
        + _recipe(_settings(model.config), model.unheeded),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _header(system: str, data: str, metrics: Mapping[str, Any] | None) -> str:
    """Return the YAML that hubs read: JSON strings are YAML too, so no name can break it."""
    lines = [
        "---",
        "library_name: gandalf-xmc",
        "pipeline_tag: text-classification",
        f"tags: [gandalf, extreme-classification, multi-label, {json.dumps(system)}]",
    ]
    found = _test_part(metrics)
    figures = {name: found[name] for name in FIGURES if isinstance(found.get(name), int | float)}
    if figures:
        named = json.dumps(data or "test split", ensure_ascii=False)
        lines += [
            "model-index:",
            f"- name: {json.dumps(system)}",
            "  results:",
            "  - task: {type: text-classification}",
            f"    dataset: {{name: {named}, type: {named}}}",
            "    metrics:",
            *(f"    - {{type: {json.dumps(name)}, value: {value:.2f}}}" for name, value in figures.items()),
        ]
    return "\n".join([*lines, "---"])


def _test_part(metrics: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = {} if metrics is None else metrics
    return found["test"] if isinstance(found.get("test"), Mapping) else found


CHANGED_SINCE = "changed_since"  # in `metrics.json`: what was added to the model after it was scored
_USE = """## Use

```
gandalf predict THIS_FOLDER "a short text"
gandalf predict THIS_FOLDER texts.txt -o predictions.jsonl
```

```python
import gandalf

predictor = gandalf.Predictor(gandalf.load_model("THIS_FOLDER"))
ids, scores = predictor.predict("a short text", k=5)
```"""


def _limits(model: Part) -> str:
    return f"""## Intended use and limits

For ranking the labels in `labels.jsonl` on texts like the training texts, such as to suggest related items
to a person. {model.reads} It knows no other labels, and
it ranks some label first however foreign the text: use a threshold. Frequent labels are predicted better
than rare ones. Whatever is one-sided or wrong in the training data is so in the predictions: do not let it
decide about people alone."""


def _since(metrics: Mapping[str, Any] | None) -> str:
    """Say what the model was given after the figures were measured."""
    found = metrics or {}
    measured = any(name in found for name in FIGURES)
    changed = found.get(CHANGED_SINCE)
    return f"Figures above were measured before {changed}." if measured and changed else ""


def _added(config: Mapping[str, Any]) -> str:
    """What is said of labels that the model was not trained on."""
    count = sum(int(record["labels"]) for record in config.get("added_labels", []))
    if not count:
        return ""
    return f"""## Added labels

Without training, from its text and what else was known of each: the last {counted(count, "label")} in
`labels.jsonl`. Figures above were measured before. Predictions for added labels are less sure than others."""


def _name_of_data(config: Mapping[str, Any]) -> str:
    data = config.get("data")
    return str(data.get("name", "")) if isinstance(data, Mapping) else str(data or "")


def _figures(metrics: Mapping[str, Any] | None) -> str:
    """The figures on the test split, on texts that are and are not a label's own text apart."""
    found = _test_part(metrics)
    names = [name for name in FIGURES if name in found]
    if not names:
        return "## Figures\n\nNot measured on a test split."
    parts = {title: found[part] for part, title in PARTS.items() if isinstance(found.get(part), Mapping)}
    columns = {"all": found, **parts}
    rows = [
        f"| {name} | " + " | ".join(_number(part.get(name)) for part in columns.values()) + " |"
        for name in names
    ]
    points = " | ".join(f"{part['points']:,}" if "points" in part else "-" for part in columns.values())
    return "\n".join(
        [
            "## Figures\n",
            "In percent, on the test split, its filter applied.\n",
            f"| | {' | '.join(columns)} |",
            "|---" * (len(columns) + 1) + "|",
            *rows,
            f"| test points | {points} |",
        ]
    )


def _settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    recipe = config.get("recipe")
    return recipe if isinstance(recipe, Mapping) else config


def _recipe(config: Mapping[str, Any], unheeded: Container[str]) -> str:
    """The settings that are single values, and those one level down, without those that say nothing."""
    lines = []
    for name, value in config.items():
        if name in unheeded:
            continue
        if isinstance(value, Mapping):
            shown = {key: each for key, each in value.items() if f"{name}.{key}" not in unheeded}
            inner = ", ".join(f"{key} {_shown(each)}" for key, each in shown.items() if _is_plain(each))
            lines.append(f"- {name}: {inner}")
        elif _is_plain(value):
            lines.append(f"- {name}: {_shown(value)}")
    return "\n".join(lines)


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-"
