"""Names of files that tools never write, and of files for which a person is always asked first.

What the runtime itself reads as configuration could give a tool more power than its user gave it, so no tool writes it:
not even where no such file exists yet, and under no spelling of its name. Files that other programs run by themselves
(CI, hooks, editors, shells), or that later sessions read as instructions, may be written when a person agrees.
"""

from typing import Final

PROTECTED_NAMES: Final[tuple[str, ...]] = (
    # our own configuration, here or in a folder above or below
    "perdure.toml", ".perdure", ".perdure/", ".mcp.json",
    # that of the version control, whose hooks and settings run programs
    ".git", ".git/", ".hg", ".hg/", ".jj", ".jj/", ".svn", ".svn/",
)  # fmt: skip
"""Patterns, as for `find_blocking_pattern`, of files that tools never write."""

ALWAYS_ASK_NAMES: Final[tuple[str, ...]] = (
    # instructions and skills that later sessions read
    "AGENTS.md", "CLAUDE.md", ".agents/", ".claude/", ".cursor/", ".cursorrules",
    # continuous integration
    ".github/workflows/", ".github/actions/", ".gitlab-ci.yml", ".circleci/", "Jenkinsfile", "azure-pipelines.yml",
    ".travis.yml", ".woodpecker/", ".drone.yml", ".buildkite/",
    # hooks of the version control, and what changes how it treats files
    ".githooks/", ".husky/", ".pre-commit-config.yaml", "lefthook.yml", ".gitmodules", ".gitattributes", ".gitconfig",
    # editors and their tasks
    ".vscode/", ".idea/", ".devcontainer/", ".devcontainer.json", ".vimrc", ".nvimrc", ".exrc", ".editorconfig",
    ".dir-locals.el",
    # shells and tools that run what they find in a folder
    ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".zprofile", ".tool-versions", "mise.toml",
)  # fmt: skip
"""Patterns of files about which a person is asked whatever the rules allow."""
