"""Define the requests and answers; the OpenAPI document is made from these classes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from gandalf.serve.limits import Limits

LIMITS = Limits()


def _whole(value: Any) -> Any:  # noqa: ANN401  any JSON value
    """Turn 5.0 into 5, since JSON does not tell the two apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[StrictStr, Field(max_length=LIMITS.length)]
SomeText = Annotated[StrictStr, Field(min_length=1, max_length=LIMITS.length)]  # not empty
Name = Annotated[StrictInt, Field(ge=0), BeforeValidator(_whole)] | Text
Texts = Annotated[list[Text], Field(min_length=1, max_length=LIMITS.texts)]
Names = Annotated[list[Name], Field(max_length=LIMITS.names)]
Count = Annotated[StrictInt, Field(ge=1, le=LIMITS.k), BeforeValidator(_whole)]


class StrictRequest(BaseModel):
    """A request; an unknown field is an error, so that a misspelt field is not ignored."""

    model_config = ConfigDict(extra="forbid")


class PredictRequest(StrictRequest):
    """One text in `text` or many in `texts`, and the wanted number and choice of labels."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["texts"]}]}
    )

    text: Text | Texts = Field(default_factory=list, description="One text; a list is the same as `texts`.")
    texts: Texts = Field(default_factory=list)
    k: Count = 5
    threshold: Annotated[float, Field(ge=0, le=1, strict=True)] | None = Field(
        None, description="Leave out labels less probable than this."
    )
    allow: Names | None = Field(
        default=None, description="Predict only these labels, by number, id or whole text."
    )
    deny: Names = Field(
        default_factory=list, description="Do not predict these labels, by number, id or whole text."
    )
    baseline: StrictBool = Field(default=False, description="Also ask the baseline model.")

    @model_validator(mode="after")
    def _need_one_of_them(self) -> Self:
        if len(self.model_fields_set & {"text", "texts"}) != 1:
            raise PydanticCustomError("one_of", "give either text or texts")
        return self

    @property
    def all_texts(self) -> list[str]:
        """Return the texts of the request as a list."""
        return self.texts or ([self.text] if isinstance(self.text, str) else self.text)


class EmbedRequest(StrictRequest):
    """Texts to turn into vectors."""

    texts: Texts
    baseline: StrictBool = Field(default=False, description="Ask the baseline model.")


class ExplainRequest(StrictRequest):
    """A text, and the label to explain."""

    text: Text
    label: Name
    baseline: StrictBool = Field(default=False, description="Explain the baseline model.")


class NewLabelRequest(StrictRequest):
    """A label to add: its text and optionally its id, examples and neighbours."""

    text: SomeText
    id: SomeText | None = None
    examples: Annotated[list[Text], Field(max_length=LIMITS.examples)] = Field(
        default_factory=list, description="Texts that are known to have the label."
    )
    neighbours: Annotated[list[Name], Field(max_length=LIMITS.examples)] = Field(
        default_factory=list,
        description="Known labels that are like the new label, by number, id or whole text.",
    )


class AddRequest(StrictRequest):
    """Labels to add; all are added or none."""

    labels: Annotated[list[NewLabelRequest], Field(min_length=1, max_length=LIMITS.new_labels)]


class ExampleRequest(StrictRequest):
    """A text with its known labels."""

    text: SomeText
    labels: Annotated[list[Name], Field(min_length=1, max_length=LIMITS.names)] = Field(
        description="The labels, by number, id or whole text."
    )
    values: list[Annotated[float, Field(ge=-1, le=1, strict=True)]] | None = Field(
        None, description="One value for each label: 1: the text has the label; -1: it does not."
    )
    id: SomeText | None = Field(
        None, description="Id by which the example can be removed. Default: a random id."
    )


class ExamplesRequest(StrictRequest):
    """Examples to add, and labels that they need; all are added or none."""

    examples: Annotated[list[ExampleRequest], Field(min_length=1, max_length=LIMITS.new_labels)]
    new_labels: Annotated[list[NewLabelRequest], Field(max_length=LIMITS.new_labels)] = Field(
        default_factory=list, description="Labels that the model does not have yet."
    )


class Error(BaseModel):
    """An error, as one sentence."""

    error: str


class Label(BaseModel):
    """A label: its number, its id if labels have ids, and its text."""

    label: int
    id: str | None
    text: str


class Scored(Label):
    """A label and its probability."""

    score: float


class Result(BaseModel):
    """A text and its labels, best first."""

    text: str
    labels: list[Scored]
    known: bool = Field(True, description="False: nothing in the text is known to the model.")


class Predictions(BaseModel):
    """Labels of each text, in the order of the request; scores of a calibrated model are probabilities."""

    results: list[Result]
    baseline: list[Result] | None = None
    calibrated: bool


class Embedded(BaseModel):
    """A vector of length 1 for each text, in the order of the request; products are similarities."""

    vectors: list[list[float]]


class Labels(BaseModel):
    """Some labels, and the number of all labels."""

    labels: list[Label]
    all_labels: int


class AddedExample(BaseModel):
    """An example, and the id by which it can be removed."""

    id: str
    text: str


class Examples(BaseModel):
    """The examples that were added, and the number of all examples."""

    examples: list[AddedExample]
    all_examples: int


class Word(BaseModel):
    """A word of the text, and the label's probability without the word."""

    word: str
    start: int
    end: int
    without: float
    effect: float


class Point(BaseModel):
    """A training point, its similarity to the text, and its target for the label."""

    point: int
    text: str
    similarity: float
    target: float


class Alike(BaseModel):
    """A label and its similarity."""

    label: int
    text: str
    similarity: float


class Teacher(Alike):
    """A label whose text was a training point with the explained label as a target."""

    target: float


class Share(BaseModel):
    """The probability of the label by a part of a mix, and the part's weight."""

    part: str
    weight: float
    probability: float


class Remembered(BaseModel):
    """A remembered point that votes for the label, and its share of the probability."""

    text: str
    kind: str
    id: str | None
    similarity: float
    share: float


class Explanation(BaseModel):
    """An explanation of a label; lists that need the training data are null without it."""

    text: str
    label: int
    label_text: str
    probability: float
    words: list[Word]
    alike: list[Alike]
    nearest: list[Point] | None
    with_label: list[Point] | None
    teachers: list[Teacher] | None
    shares: list[Share] = Field(description="Parts of a mix, the one that adds most first; else empty.")
    remembered: list[Remembered] | None = Field(description="Null if the model has no memory.")


class Near(BaseModel):
    """The neighbours of a label, and links among them: from label, to label, weight."""

    label: int
    text: str
    by: Literal["graph", "rows"]
    neighbours: list[Alike]
    links: list[tuple[int, int, float]]


class About(BaseModel):
    """A description of the served model."""

    name: str
    labels: int
    search: str
    recall: float | None = Field(
        description="Share of the exact search's 10 best labels that the index finds; null without an index."
    )
    calibrated: bool
    baseline: str | None
    adds_labels: bool
    has_data: bool


class Status(BaseModel):
    """The status of the process."""

    status: Literal["ok"]


class Readiness(Status):
    """The status of predictions and additions."""

    adding: str = Field(description="on, off, or the reason why nothing can be added now.")
