"""What the model is sent: project files, prompts, skills, roles, commands, and the history of the conversation."""

from ._facade import export

NAMES_BY_MODULE = {
    "._config.trusted": ("TrustedFiles",),
    "._context.directives.commands": ("Command", "CommandFailed", "CommandHandler", "Rewrite", "ShortCircuit"),
    "._context.directives.mentions": ("MentionSettings",),
    "._context.front_matter": ("parse_front_matter",),
    "._context.history.compaction": ("Compaction", "FRACTION_BEFORE_TOOLS"),
    "._context.history.long_results": ("large_results", "previewed", "summarize_old_results"),
    "._context.history.processors": ("BufferMemory", "CompositeMemory", "VectorMemory", "WindowMemory"),
    "._context.history.search_tools": ("history_tools",),
    "._context.history.strategies": ("ConversationSummarizer", "Strategy", "keep_recent"),
    "._context.history.tokens": ("count_context_tokens",),
    "._context.project": ("Project",),
    "._context.prompt_files": ("Prompts",),
    "._context.role": ("Role",),
    "._context.role_files": ("load_roles",),
    "._context.skills.loading": ("load_skills", "load_skills_from"),
    "._context.skills.skill": (
        "Resource",
        "ResourceLoader",
        "Skill",
        "SkillHandler",
        "SkillSource",
        "Skills",
        "format_skill_body",
    ),
    "._context.skills.tools": ("skill_tools",),
    "._context.skills.trust": ("Trust",),
    "._work.memory.embedder": ("Embedder",),
    "._work.memory.long_term": ("LongTermMemory", "MemoryImportReport"),
    "._work.memory.record": ("MemoryHit", "MemoryRecord", "MemoryScope"),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
