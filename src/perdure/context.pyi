# Written by `python -m scripts.exports`, from the table in context.py. Not edited by hand.

from ._config.trusted import TrustedFiles as TrustedFiles
from ._context.directives.commands import Command as Command
from ._context.directives.commands import CommandFailed as CommandFailed
from ._context.directives.commands import CommandHandler as CommandHandler
from ._context.directives.commands import Rewrite as Rewrite
from ._context.directives.commands import ShortCircuit as ShortCircuit
from ._context.directives.mentions import MentionSettings as MentionSettings
from ._context.front_matter import parse_front_matter as parse_front_matter
from ._context.history.compaction import FRACTION_BEFORE_TOOLS as FRACTION_BEFORE_TOOLS
from ._context.history.compaction import Compaction as Compaction
from ._context.history.long_results import large_results as large_results
from ._context.history.long_results import previewed as previewed
from ._context.history.long_results import summarize_old_results as summarize_old_results
from ._context.history.processors import BufferMemory as BufferMemory
from ._context.history.processors import CompositeMemory as CompositeMemory
from ._context.history.processors import VectorMemory as VectorMemory
from ._context.history.processors import WindowMemory as WindowMemory
from ._context.history.search_tools import history_tools as history_tools
from ._context.history.strategies import ConversationSummarizer as ConversationSummarizer
from ._context.history.strategies import Strategy as Strategy
from ._context.history.strategies import keep_recent as keep_recent
from ._context.history.tokens import count_context_tokens as count_context_tokens
from ._context.project import Project as Project
from ._context.prompt_files import Prompts as Prompts
from ._context.role import Role as Role
from ._context.role_files import load_roles as load_roles
from ._context.skills.loading import load_skills as load_skills
from ._context.skills.loading import load_skills_from as load_skills_from
from ._context.skills.skill import Resource as Resource
from ._context.skills.skill import ResourceLoader as ResourceLoader
from ._context.skills.skill import Skill as Skill
from ._context.skills.skill import SkillHandler as SkillHandler
from ._context.skills.skill import Skills as Skills
from ._context.skills.skill import SkillSource as SkillSource
from ._context.skills.skill import format_skill_body as format_skill_body
from ._context.skills.tools import skill_tools as skill_tools
from ._context.skills.trust import Trust as Trust
from ._work.memory.embedder import Embedder as Embedder
from ._work.memory.long_term import LongTermMemory as LongTermMemory
from ._work.memory.long_term import MemoryImportReport as MemoryImportReport
from ._work.memory.record import MemoryHit as MemoryHit
from ._work.memory.record import MemoryRecord as MemoryRecord
from ._work.memory.record import MemoryScope as MemoryScope

__all__ = [
    "FRACTION_BEFORE_TOOLS",
    "BufferMemory",
    "Command",
    "CommandFailed",
    "CommandHandler",
    "Compaction",
    "CompositeMemory",
    "ConversationSummarizer",
    "Embedder",
    "LongTermMemory",
    "MemoryHit",
    "MemoryImportReport",
    "MemoryRecord",
    "MemoryScope",
    "MentionSettings",
    "Project",
    "Prompts",
    "Resource",
    "ResourceLoader",
    "Rewrite",
    "Role",
    "ShortCircuit",
    "Skill",
    "SkillHandler",
    "SkillSource",
    "Skills",
    "Strategy",
    "Trust",
    "TrustedFiles",
    "VectorMemory",
    "WindowMemory",
    "count_context_tokens",
    "format_skill_body",
    "history_tools",
    "keep_recent",
    "large_results",
    "load_roles",
    "load_skills",
    "load_skills_from",
    "parse_front_matter",
    "previewed",
    "skill_tools",
    "summarize_old_results",
]
