"""What requests and answers look like: the OpenAPI document is made of these."""

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


def _whole(value: Any) -> Any:  # noqa: ANN401  whatever a request holds
    """To JSON, 5.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[StrictStr, Field(max_length=LIMITS.length)]
Name = (
    Annotated[StrictInt, Field(ge=0), BeforeValidator(_whole)]
    | Annotated[StrictStr, Field(max_length=LIMITS.length)]
)
Texts = Annotated[list[Text], Field(min_length=1, max_length=LIMITS.texts)]
Names = Annotated[list[Name], Field(max_length=LIMITS.names)]
Count = Annotated[StrictInt, Field(ge=1, le=LIMITS.k), BeforeValidator(_whole)]


class Asked(BaseModel):
    """A request; a name that is not known is refused, since it was meant to do something."""

    model_config = ConfigDict(extra="forbid")


class PredictRequest(Asked):
    """One text under `text` or many under `texts`, and which of their labels are wanted."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["texts"]}]}
    )

    text: Text | Texts = Field(default_factory=list, description="One text; a list is the same as `texts`.")
    texts: Texts = Field(default_factory=list)
    k: Count = 5
    threshold: Annotated[float, Field(ge=0, le=1, strict=True)] | None = Field(
        None, description="Leave out labels less probable than this."
    )
    allow: Names | None = Field(default=None, description="Only these labels, by number, id or whole text.")
    deny: Names = Field(default_factory=list, description="None of these labels.")
    baseline: StrictBool = Field(default=False, description="Also ask the model beside it.")

    @model_validator(mode="after")
    def _need_one_of_them(self) -> Self:
        if len(self.model_fields_set & {"text", "texts"}) != 1:
            raise PydanticCustomError("one_of", "give either text or texts")
        return self

    @property
    def all_texts(self) -> list[str]:
        """The texts that are asked about."""
        return self.texts or ([self.text] if isinstance(self.text, str) else self.text)


class EmbedRequest(Asked):
    """Texts whose vectors are wanted."""

    texts: Texts
    baseline: StrictBool = Field(default=False, description="By the model beside it.")


class ExplainRequest(Asked):
    """A text and a label of it."""

    text: Text
    label: Name
    baseline: StrictBool = Field(default=False, description="Explain the model beside it.")


class NewLabelRequest(Asked):
    """A label to add: its text, and what else is known of it."""

    text: Annotated[StrictStr, Field(min_length=1, max_length=LIMITS.length)]
    id: Annotated[StrictStr, Field(min_length=1, max_length=LIMITS.length)] | None = None
    examples: Annotated[list[Text], Field(max_length=LIMITS.examples)] = Field(
        default_factory=list, description="Texts that are known to have it."
    )
    neighbours: Annotated[list[Name], Field(max_length=LIMITS.examples)] = Field(
        default_factory=list, description="Known labels that are like it, by number, id or whole text."
    )


class AddRequest(Asked):
    """Labels to add, all of them or none."""

    labels: Annotated[list[NewLabelRequest], Field(min_length=1, max_length=LIMITS.new_labels)]


class ExampleRequest(Asked):
    """A text and labels that it is known to have."""

    text: Annotated[StrictStr, Field(min_length=1, max_length=LIMITS.length)]
    labels: Annotated[list[Name], Field(min_length=1, max_length=LIMITS.names)] = Field(
        description="By number, id or whole text."
    )
    values: list[Annotated[float, Field(ge=-1, le=1, strict=True)]] | None = Field(
        None, description="One for each label: 1 for has it, -1 for does not have it."
    )
    id: Annotated[StrictStr, Field(min_length=1, max_length=LIMITS.length)] | None = Field(
        None, description="By which it can be removed; else one is made up."
    )


class ExamplesRequest(Asked):
    """Examples to add, and labels that they need; all of them or none."""

    examples: Annotated[list[ExampleRequest], Field(min_length=1, max_length=LIMITS.new_labels)]
    new_labels: Annotated[list[NewLabelRequest], Field(max_length=LIMITS.new_labels)] = Field(
        default_factory=list, description="Labels that the model does not have yet."
    )


class Error(BaseModel):
    """What went wrong, in a sentence."""

    error: str


class Label(BaseModel):
    """A label by its number, its own id if it has one, and its text."""

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
    """Labels of each text in the order asked; scores are probabilities if the model is calibrated."""

    results: list[Result]
    baseline: list[Result] | None = None
    calibrated: bool


class Embedded(BaseModel):
    """A vector of length 1 for each text in the order asked; products say how alike two texts are."""

    vectors: list[list[float]]


class Labels(BaseModel):
    """Some labels, and how many there are in all."""

    labels: list[Label]
    all_labels: int


class AddedExample(BaseModel):
    """An example and the id by which it can be removed."""

    id: str
    text: str


class Examples(BaseModel):
    """Examples that were added, and how many there are in all."""

    examples: list[AddedExample]
    all_examples: int


class Word(BaseModel):
    """A word of the text, and the label's probability without it."""

    word: str
    start: int
    end: int
    without: float
    effect: float


class Point(BaseModel):
    """A training point."""

    point: int
    text: str
    similarity: float
    target: float


class Alike(BaseModel):
    """A label and how near it is."""

    label: int
    text: str
    similarity: float


class Teacher(Alike):
    """A label whose text was trained with the explained one among its targets."""

    target: float


class Share(BaseModel):
    """What a part of a mix says of the label, and its weight in the mix."""

    part: str
    weight: float
    probability: float


class Remembered(BaseModel):
    """A remembered point that speaks for the label, and what it adds to the probability."""

    text: str
    kind: str
    id: str | None
    similarity: float
    share: float


class Explanation(BaseModel):
    """Why a text gets a label; lists that need the training data are null without it."""

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
    """The neighbours of a label, and links among them: from, to, weight."""

    label: int
    text: str
    by: Literal["graph", "rows"]
    neighbours: list[Alike]
    links: list[tuple[int, int, float]]


class About(BaseModel):
    """What is served."""

    name: str
    labels: int
    search: str
    recall: float | None = Field(description="Of the 10 best labels of exact search, where an index is used.")
    calibrated: bool
    baseline: str | None
    adds_labels: bool
    has_data: bool


class Status(BaseModel):
    """Whether all is well."""

    status: Literal["ok"]


class Readiness(Status):
    """Whether predictions work, and additions."""

    adding: str = Field(description="on, off, or a sentence that says why nothing can be added now.")
