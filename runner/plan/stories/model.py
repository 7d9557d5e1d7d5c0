"""The pydantic model of a story's keys, for values that are not plainly right."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, create_model

from runner.plan.stories.keys import KEYS, Key


def _type_of(key: Key) -> Any:
    """Return the type that pydantic checks a value against; one that is None is absent."""
    one: Any = key.holds
    for check in key.checks:
        one = Annotated[one, AfterValidator(check)]
    if not key.many:
        return one | None
    several: Any = list[one] | None
    return Annotated[several, BeforeValidator(key.reads)] if key.reads else several


_FIELDS: dict[str, Any] = {name: (_type_of(key), None) for name, key in KEYS.items()}
MODEL: type[BaseModel] = create_model("Story", __config__=ConfigDict(extra="forbid", strict=True), **_FIELDS)
