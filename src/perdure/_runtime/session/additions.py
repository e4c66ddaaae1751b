"""Extensions and model objects that are added to one session, besides those of its agent; kept in this process only.

They are code, which a log cannot store. So they are kept in this process, by store and session id: each `Session`
object of the session that is made afterwards has them, until they are removed, the session is deleted, or the process
ends.
"""

from typing import TYPE_CHECKING, Any

from perdure._core.log.store import Store, get_process_wide_session_key
from perdure._core.model.protocol import Model, model_info
from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._models.registry import open_model
from perdure._runtime.agent.extension import Extension
from perdure._runtime.agent.spec import OBJECT_PREFIX, AgentSpec

from .driver import AddedExtensionsAndModels, session_additions

if TYPE_CHECKING:
    from .stored import StoredSession


def apply_additions(agent: AgentSpec[Any], store: Store, session_id: str) -> AgentSpec[Any]:
    """Return the agent of a session with the extensions and models that were added to the session in this process."""
    found = session_additions.get(get_process_wide_session_key(store, session_id))
    return agent if found is None else agent.with_additions(list(found.extensions.values()), found.models)


def add_extension(session: "StoredSession[Any]", extension: object) -> None:
    """Add an extension to a session. Raises `ConfigError`, and changes nothing, if it cannot be added."""
    if not isinstance(extension, Extension):
        checks.raise_config_error("session.extend", "extension", extension, "give an Extension(…)")
    if extension.lifespan is not None:
        advice = "it opens resources, which belong to an agent: give it to the agent, as in Agent(extensions=[…])"
        checks.raise_config_error("session.extend", "extension", extension.name, advice)
    if extension.name in {each.name for each in session.agent.extensions}:
        raise ConfigError(f"this session has an extension {extension.name!r} already: remove_extension() it first")
    additions = _get_additions(session)
    session.use_agent(session.agent.with_additions([*additions.extensions.values(), extension], additions.models))
    additions.extensions[extension.name] = extension


def remove_extension(session: "StoredSession[Any]", name: str) -> bool:
    """Remove an extension that was added to a session; return False if there is none of that name."""
    additions = _get_additions(session)
    if additions.extensions.pop(name, None) is None:
        return False
    session.use_agent(session.agent.with_additions(list(additions.extensions.values()), additions.models))
    return True


def name_session_model(session: "StoredSession[Any]", model: Model | str) -> str:
    """Return the name under which the log refers to a session's model; keep a model object in this process.

    Raises `ConfigError` if there is no model of that name. An empty name stands for the model of the agent.
    """
    if isinstance(model, str):
        if model:
            open_model(model)
        return model
    model = open_model(model)
    additions = _get_additions(session)
    name = f"{OBJECT_PREFIX}{model_info(model).name}"
    additions.models[name] = model
    session.use_agent(session.agent.with_additions(list(additions.extensions.values()), additions.models))
    return name


def _get_additions(session: "StoredSession[Any]") -> AddedExtensionsAndModels:
    key = get_process_wide_session_key(session.store, session.session_id)
    return session_additions.setdefault(key, AddedExtensionsAndModels(session.store))
