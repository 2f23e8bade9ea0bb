"""Write the model card: what the model is, its training data, its figures and its limits."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from typing import Any

from gandalf.data.sentences import counted
from gandalf.model.added_labels import count_added
from gandalf.model.part import Part

FIGURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "C@1", "C@5", "MRR")
TEXT_GROUPS = {"label_text": "text is a label's", "new_text": "new text"}

CHANGED_SINCE = "changed_since"  # key of `metrics.json`: what changed in the model after it was scored

_CALIBRATED = "Scores are probabilities, calibrated on points held out of the training data."
_UNCALIBRATED = "Scores are sigmoids of the model's output. They rank; they are not calibrated probabilities."


def model_card(model: Part, metrics: Mapping[str, Any] | None) -> str:
    """Return the README of a model folder, from the model's config and its figures on the test split."""
    system = str(model.config.get("system", "model"))
    data = _data_name(model.config)
    about = f", trained on {data}" if data else ""
    sections = (
        _header(system, data, metrics),
        f"# {system}{about}",
        f"Predicts which of {model.num_labels:,} labels a short text has. "
        f"Made with gandalf: {model.card_summary}",
        _USE,
        "## Scores\n\n" + (_UNCALIBRATED if model.calibration is None else _CALIBRATED),
        _figures_section(metrics),
        _changed_since(metrics),
        _added_labels_section(model.config),
        _limits_section(model),
        "## Recipe\n\n`config.json` holds every setting, defaults included.\n\n"
        + _settings_list(_settings(model.config), model.unused_settings),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _header(system: str, data: str, metrics: Mapping[str, Any] | None) -> str:
    """Return the YAML header that hubs read; names are written as JSON strings, which are valid YAML."""
    lines = [
        "---",
        "library_name: gandalf-xmc",
        "pipeline_tag: text-classification",
        f"tags: [gandalf, extreme-classification, multi-label, {json.dumps(system)}]",
    ]
    found = _test_figures(metrics)
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


def _test_figures(metrics: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the figures on the test split, which a run may keep under the key `test`."""
    found = {} if metrics is None else metrics
    return found["test"] if isinstance(found.get("test"), Mapping) else found


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


def _limits_section(model: Part) -> str:
    return f"""## Intended use and limits

For ranking the labels in `labels.jsonl` on texts like the training texts, such as to suggest related items
to a person. {model.card_limits} It knows no other labels, and
it ranks some label first however foreign the text: use a threshold. Frequent labels are predicted better
than rare ones. Whatever is one-sided or wrong in the training data is so in the predictions: do not let it
decide about people alone."""


def _changed_since(metrics: Mapping[str, Any] | None) -> str:
    """Return a sentence about changes of the model after its figures were measured, or ""."""
    found = metrics or {}
    measured = any(name in found for name in FIGURES)
    changed = found.get(CHANGED_SINCE)
    return f"Figures above were measured before {changed}." if measured and changed else ""


def _added_labels_section(config: Mapping[str, Any]) -> str:
    """Return the section about labels that were added without training, or ""."""
    count = count_added(config)
    if not count:
        return ""
    return f"""## Added labels

Added without training, from texts, examples and neighbours: the last {counted(count, "label")} in
`labels.jsonl`. Figures above were measured before. Predictions of added labels are less reliable."""


def _data_name(config: Mapping[str, Any]) -> str:
    data = config.get("data")
    return str(data.get("name", "")) if isinstance(data, Mapping) else str(data or "")


def _figures_section(metrics: Mapping[str, Any] | None) -> str:
    """Return the section with the figures on the test split: on all, known and new texts."""
    found = _test_figures(metrics)
    names = [name for name in FIGURES if name in found]
    if not names:
        return "## Figures\n\nNot measured on a test split."
    parts = {
        title: found[part] for part, title in TEXT_GROUPS.items() if isinstance(found.get(part), Mapping)
    }
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
    """Return the recipe of the model, which a mix keeps under the key `recipe`."""
    recipe = config.get("recipe")
    return recipe if isinstance(recipe, Mapping) else config


def _settings_list(config: Mapping[str, Any], unused_settings: Container[str]) -> str:
    """Return the plain settings, down to one level of tables, without those that do not apply."""
    lines = []
    for name, value in config.items():
        if name in unused_settings:
            continue
        if isinstance(value, Mapping):
            shown = {key: each for key, each in value.items() if f"{name}.{key}" not in unused_settings}
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
