# Written by `python -m scripts.exports`, from the table in tools.py. Not edited by hand.

from ._context.history.long_results import LargeResults as LargeResults
from ._core.schema.parameters import build_parameters_from_json_schema as build_parameters_from_json_schema
from ._core.schema.parameters import check_value as check_value
from ._core.schema.parameters import convert_value as convert_value
from ._core.schema.parameters import json_schema_for_type as json_schema_for_type
from ._core.schema.parameters import parameters_from_function as parameters_from_function
from ._core.tools.tool import Effect as Effect
from ._core.tools.tool import Finish as Finish
from ._core.tools.tool import Prepare as Prepare
from ._core.tools.tool import Skip as Skip
from ._core.tools.tool import tool_from_schema as tool_from_schema
from ._core.tools.worker.threads import set_tool_threads as set_tool_threads
from ._core.tools.wrappers import ToolWrapper as ToolWrapper
from ._core.tools.wrappers import after as after
from ._core.tools.wrappers import around as around
from ._core.tools.wrappers import before as before
from ._core.tools.wrappers import timed as timed
from ._core.tools.wrappers import truncated as truncated
from ._core.values.jsonable import to_jsonable as to_jsonable
from ._runtime.subagents.delegation import delegation as delegation
from ._runtime.subagents.delegation import orchestrator as orchestrator
from ._runtime.subagents.tool import AgentFactory as AgentFactory
from ._runtime.subagents.tool import subagent as subagent
from ._tools.basic import basic_tools as basic_tools
from ._tools.browser.page_text import format_browser_element as format_browser_element
from ._tools.browser.page_text import format_browser_snapshot as format_browser_snapshot
from ._tools.browser.tools import browser_tools as browser_tools
from ._tools.extensions import code_mode as code_mode
from ._tools.extensions import coding as coding
from ._tools.extensions import history as history
from ._tools.extensions import large_results as large_results
from ._tools.extensions import memory as memory
from ._tools.extensions import notebook as notebook
from ._tools.extensions import short_results as short_results
from ._tools.extensions import tool_search as tool_search
from ._tools.extensions import tracing as tracing
from ._tools.files.edits import EditResult as EditResult
from ._tools.files.edits import TextEdit as TextEdit
from ._tools.files.history import FileChange as FileChange
from ._tools.files.history import FileHistory as FileHistory
from ._tools.files.history import InterruptedRestore as InterruptedRestore
from ._tools.files.history import RestoredFile as RestoredFile
from ._tools.files.history import RestoreStatus as RestoreStatus
from ._tools.files.history import UntrackedCommand as UntrackedCommand
from ._tools.files.tools import edit_tool as edit_tool
from ._tools.files.tools import format_page as format_page
from ._tools.files.tools import list_tool as list_tool
from ._tools.files.tools import read_tool as read_tool
from ._tools.files.tools import write_tool as write_tool
from ._tools.git.local import LocalGit as LocalGit
from ._tools.git.tools import git_commit_tool as git_commit_tool
from ._tools.git.tools import git_read_tools as git_read_tools
from ._tools.people import ask_user as ask_user
from ._tools.people import people_tools as people_tools
from ._tools.people import plan as plan
from ._tools.people import post_to_inbox as post_to_inbox
from ._tools.search.tools import format_matches as format_matches
from ._tools.search.tools import glob_tool as glob_tool
from ._tools.search.tools import grep_tool as grep_tool
from ._tools.shell.local import CommandLimits as CommandLimits
from ._tools.shell.parser import split_command_line as split_command_line
from ._tools.shell.read_only import explain_reading as explain_reading
from ._tools.shell.tools import build_output as build_output
from ._tools.shell.tools import code_execution_tool as code_execution_tool
from ._tools.shell.tools import exec_tool as exec_tool
from ._tools.shell.tools import shell_tools as shell_tools
from ._tools.tasks.storage import MemoryValues as MemoryValues
from ._tools.tasks.storage import Values as Values
from ._tools.tasks.storage import ValueStore as ValueStore
from ._tools.tasks.storage import read_scratchpad as read_scratchpad
from ._tools.tasks.storage import scratchpad_tools as scratchpad_tools
from ._tools.tasks.storage import write_scratchpad as write_scratchpad
from ._tools.tasks.task_list import Task as Task
from ._tools.tasks.task_list import TaskStatus as TaskStatus
from ._tools.tasks.task_list import parse_tasks as parse_tasks
from ._tools.tasks.task_list import task_tools as task_tools
from ._tools.tasks.task_list import update_tasks as update_tasks
from ._tools.tasks.todo import RETRY_LIMIT as RETRY_LIMIT
from ._tools.tasks.todo import TodoItem as TodoItem
from ._tools.tasks.todo import TodoStatus as TodoStatus
from ._tools.tasks.todo import parse_todos as parse_todos
from ._tools.tasks.todo import todo_append as todo_append
from ._tools.tasks.todo import todo_list as todo_list
from ._tools.tasks.todo import todo_tools as todo_tools
from ._tools.tasks.todo import todo_update as todo_update
from ._tools.web.tools import format_fetched_page as format_fetched_page
from ._tools.web.tools import format_search_results as format_search_results
from ._tools.web.tools import web_fetch_tool as web_fetch_tool
from ._tools.web.tools import web_search_tool as web_search_tool

__all__ = [
    "RETRY_LIMIT",
    "AgentFactory",
    "CommandLimits",
    "EditResult",
    "Effect",
    "FileChange",
    "FileHistory",
    "Finish",
    "InterruptedRestore",
    "LargeResults",
    "LocalGit",
    "MemoryValues",
    "Prepare",
    "RestoreStatus",
    "RestoredFile",
    "Skip",
    "Task",
    "TaskStatus",
    "TextEdit",
    "TodoItem",
    "TodoStatus",
    "ToolWrapper",
    "UntrackedCommand",
    "ValueStore",
    "Values",
    "after",
    "around",
    "ask_user",
    "basic_tools",
    "before",
    "browser_tools",
    "build_output",
    "build_parameters_from_json_schema",
    "check_value",
    "code_execution_tool",
    "code_mode",
    "coding",
    "convert_value",
    "delegation",
    "edit_tool",
    "exec_tool",
    "explain_reading",
    "format_browser_element",
    "format_browser_snapshot",
    "format_fetched_page",
    "format_matches",
    "format_page",
    "format_search_results",
    "git_commit_tool",
    "git_read_tools",
    "glob_tool",
    "grep_tool",
    "history",
    "json_schema_for_type",
    "large_results",
    "list_tool",
    "memory",
    "notebook",
    "orchestrator",
    "parameters_from_function",
    "parse_tasks",
    "parse_todos",
    "people_tools",
    "plan",
    "post_to_inbox",
    "read_scratchpad",
    "read_tool",
    "scratchpad_tools",
    "set_tool_threads",
    "shell_tools",
    "short_results",
    "split_command_line",
    "subagent",
    "task_tools",
    "timed",
    "to_jsonable",
    "todo_append",
    "todo_list",
    "todo_tools",
    "todo_update",
    "tool_from_schema",
    "tool_search",
    "tracing",
    "truncated",
    "update_tasks",
    "web_fetch_tool",
    "web_search_tool",
    "write_scratchpad",
    "write_tool",
]
