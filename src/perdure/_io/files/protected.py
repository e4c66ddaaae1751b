"""Names of files that tools never write, and of files that other programs trust, about which a person is asked first.

What the runtime itself reads as configuration could give a tool more power than its user gave it, so no tool writes it:
not even where no such file exists yet, and under no spelling of its name. Files that other programs run by themselves
(CI, hooks, editors, shells), or that later sessions read as instructions, may be written when a person agrees.

A file is in the second list if a program obeys it that nobody has started for its sake: an agent that opens the folder,
an editor, a shell, a debugger, a package manager, the next push. What people name when they run it is not: a Makefile,
`package.json`, `pyproject.toml`, tests, the settings of linters. To be asked about these would be to be asked all day.
"""

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec.structs import replace

from perdure._core.permission.targets.path import PathTarget, normalize_file_name, normalize_path_names, split_path

PROTECTED_NAMES: Final[tuple[str, ...]] = (
    # our own configuration, here or in a folder above or below
    "perdure.toml", ".perdure", ".perdure/", ".mcp.json",
    # that of the version control, whose hooks and settings run programs
    ".git", ".git/", ".hg", ".hg/", ".jj", ".jj/", ".svn", ".svn/",
)  # fmt: skip
"""Patterns, as for `find_blocking_pattern`, of files that tools never write."""

TRUSTED_NAMES: Final[tuple[str, ...]] = (
    # instructions, rules, skills, roles and memories that agents read, and their settings, hooks and MCP servers
    "AGENTS.md", "AGENTS.override.md", "AGENTS.local.md", "AGENT.md", ".agent.md", "SKILL.md", ".agents", ".agent",
    ".ai", ".rules", "CLAUDE.md", "CLAUDE.local.md", ".claude", ".claude.json", ".claude-plugin",
    "GEMINI.md", ".gemini", "gemini-extension.json", "QWEN.md", ".qwen", "CODEX.md", ".codex",
    ".copilot", "copilot-instructions.md", ".copilot-instructions.md", ".cursor", ".cursorrules", ".cursor-plugin",
    ".windsurf", ".windsurfrules", ".codeium", ".devin", ".clinerules", ".clinerules-*", ".cline", ".roo", ".roorules",
    ".roorules-*", ".roomodes", ".kilo", ".kilocode", ".kilocoderules", ".kilocodemodes", ".aider.conf.yml",
    ".aider.model.settings.yml", ".aider.model.metadata.json", ".continue", ".continuerules", ".continuerc.json",
    ".opencode", "opencode.json", "opencode.jsonc", ".opencode.json", ".amp", ".kiro", ".amazonq", "AmazonQ.md",
    ".junie", ".aiassistant", ".goose", ".goosehints", "WARP.md", ".warp", "CRUSH.md", "CRUSH.local.md", ".crush",
    "crush.json", ".crush.json", ".augment", ".augment-guidelines", ".trae", ".factory", ".openhands",
    ".openhands_instructions", ".cody", ".sourcegraph", ".tabnine", ".rovodev", ".bolt", ".voidrules", ".pearai",
    ".pearairules", ".zencoder", ".vibe", ".kimi", "IFLOW.md", ".iflow", "CODEBUDDY.md", ".codebuddy", ".qoder",
    ".lingma", ".firebender", "firebender.json", ".serena", "gptme.toml", ".plandex", ".mentat_config.json",
    "replit.md", "airules.md", ".coderabbit.yaml", ".coderabbit.yml", ".greptile", "greptile.json", ".pr_agent.toml",
    "ellipsis.yaml", "mcp.json", "mcp_config.json", "mcp-config.json", "mcp_settings.json",
    "claude_desktop_config.json", ".grok", "GROK.md", "COPILOT.md", "OPENCODE.md", "CURSOR.md", ".mcp",
    "mcp.toml", ".mcp.toml", "mcp-servers.json", "mcp_servers.json", "fastmcp.json", ".jules", ".antigravity", ".droid",
    ".forge", "forge.yaml", ".letta", ".nanocoder", ".pi",
    # continuous integration
    ".github", ".gitlab-ci.yml", ".gitlab-ci.yaml", ".gitlab", ".circleci", "Jenkinsfile", "azure-pipelines.yml",
    "azure-pipelines.yaml", ".azure-pipelines", ".azuredevops", ".travis.yml", ".woodpecker", ".woodpecker.yml",
    ".woodpecker.yaml", ".drone.yml", ".drone.yaml", ".drone.star", ".buildkite", "bitbucket-pipelines.yml",
    ".appveyor.yml", "appveyor.yml", ".cirrus.yml", ".cirrus.star", ".semaphore", ".teamcity", ".forgejo", ".gitea",
    ".builds", ".build.yml", "codefresh.yml", "wercker.yml", "cloudbuild.yaml", "cloudbuild.yml", "buildspec.yml",
    "buildspec.yaml", ".harness", ".tekton", ".prow.yaml", ".zuul.yaml", ".zuul.d", "codemagic.yaml", "bitrise.yml",
    ".readthedocs.yaml", ".readthedocs.yml", "earthly.yml", "circle.yml", ".vela.yml", ".onedev-buildspec.yml",
    "screwdriver.yaml", "*.gocd.yaml", ".scrutinizer.yml", "bamboo-specs", "dagger.json", ".mergify.yml",
    "renovate.json",
    ".renovaterc", ".renovaterc.json", "Procfile", "heroku.yml", "netlify.toml", "vercel.json", "amplify.yml",
    "render.yaml", ".platform", ".platform.app.yaml", ".upsun", ".deployment", "wrangler.toml", "wrangler.jsonc",
    # hooks of the version control, and what changes how it treats files
    ".githooks", ".husky", ".huskyrc", ".huskyrc.js", ".huskyrc.json", ".huskyrc.yml", ".pre-commit-config.yaml",
    ".pre-commit-config.yml", ".pre-commit-hooks.yaml", "prek.toml", "lefthook.*", ".lefthook.*", "lefthook-local.*",
    ".lefthook-local.*", ".lefthook", ".lefthook-local", ".lintstagedrc", ".lintstagedrc.*", "lint-staged.config.*",
    ".overcommit.yml", ".simple-git-hooks.*", "simple-git-hooks.*", "captainhook.json", ".trunk", "grumphp.yml",
    "grumphp.yml.dist", ".gitmodules", ".gitattributes", ".gitconfig", ".hgrc", ".lfsconfig", ".config/git",
    ".git-hooks", "commitlint.config.*", ".commitlintrc", ".commitlintrc.*", ".czrc", ".cz-config.js", ".gitlint",
    ".hgsub",
    ".fossil-settings", ".p4config", ".repo", ".arcconfig",
    # editors, their tasks and settings, and the environments that they start
    ".vscode", "*.code-workspace", ".idea", ".run", ".fleet", ".vs", ".zed", ".nova", ".helix", ".lapce", ".theia",
    "*.sublime-project", "*.sublime-workspace", ".project", ".externalToolBuilders", ".vimrc", "_vimrc", ".gvimrc",
    ".vim", ".nvimrc", ".nvim.lua", ".exrc", ".lvimrc", ".local.vimrc", ".lazy.lua", ".neoconf.json",
    ".vimspector.json", ".ycm_extra_conf.py", ".config/nvim", ".config/zed", ".config/helix", ".editorconfig",
    ".dir-locals.el", ".dir-locals-2.el", ".emacs", ".emacs.d", ".spacemacs", ".doom.d", ".kakrc",
    ".devcontainer", ".devcontainer.json", ".gitpod.yml", ".gitpod.Dockerfile", ".ona", ".idx", ".replit", "replit.nix",
    ".codesandbox", ".stackblitzrc", "devfile.yaml", ".devfile.yaml", ".settings", ".classpath", ".factorypath",
    "nbproject", ".kateproject", ".kateproject.*", ".nlsp-settings", "Session.vim", ".vimlocal", ".tern-project",
    "rust-analyzer.toml", ".rust-analyzer.toml", "hie.yaml", ".bsp", ".bloop", ".metals", ".lsp", ".calva", ".joyride",
    ".nrepl.edn", ".merlin", ".luarc.json", ".luarc.jsonc", "omnisharp.json", ".yarn/sdks", ".solargraph.yml", ".ctags",
    ".ctags.d", ".gutctags", ".globalrc", "gtags.conf", ".directory", "desktop.ini", "autorun.inf", "*.Rproj",
    # shells, and what prepares the environment of one that enters a folder
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".shrc",
    ".xonshrc", ".inputrc", "config.fish", ".config/fish", ".config/nushell", ".tmux.conf", ".screenrc", ".xinitrc",
    ".xprofile", ".xsession", ".xsessionrc", ".pam_environment", ".config/autostart", ".config/systemd",
    ".envrc", ".config/direnv", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh", ".in", ".out", ".ondirrc",
    ".tool-versions", ".asdfrc", "mise.toml", ".mise.toml", "mise.*.toml", ".mise.*.toml", "mise", ".mise",
    ".config/mise", ".config/mise.toml", ".rtx.toml", ".rtx.*.toml", "flake.nix", "shell.nix", "devenv.nix",
    "devenv.yaml", "devbox.json", ".flox", ".netrc", "_netrc",
    "devenv.local.nix", ".rvmrc", ".rbenv-vars", ".shadowenv.d", ".prototools", ".powrc", ".powenv", ".pumaenv",
    "bin/hermit.hcl", "bin/activate-hermit", "aqua.yaml", "aqua.yml", ".aqua.yaml", ".aqua.yml", ".config/wt.toml",
    # programs that obey a file of the folder in which they are started for another purpose
    ".cargo/config", ".cargo/config.toml", "rust-toolchain", "rust-toolchain.toml", ".npmrc", ".yarnrc", ".yarnrc.yml",
    ".yarn/plugins", ".yarn/releases", ".pnpmfile.cjs", ".pnpmfile.mjs", "pnpmfile.js", "bunfig.toml",
    ".bazeliskrc", "tools/bazel", ".buckconfig", ".buckconfig.local", ".mvn", "gradle/wrapper", ".sbtopts", ".jvmopts",
    ".sbtrc", ".bundle/config", "ansible.cfg", ".terraformrc", "terraform.rc", ".terraform.d",
    ".gdbinit", ".gdbearlyinit", ".lldbinit", ".radare2rc", ".pdbrc", ".pdbrc.py", ".rdbgrc", ".byebugrc", ".perldb",
    "sitecustomize", "sitecustomize.*", "usercustomize", "usercustomize.*", "uv.toml",
    ".pythonrc", ".pythonrc.py", ".pythonstartup", "pyrightconfig.local.json",
    ".ipython", ".jupyter", ".Rprofile", ".Renviron", ".RData", ".irbrc", ".pryrc", ".ghci", ".haskeline",
    ".iex.exs", ".erlang", ".ocamlinit", ".octaverc", ".guile", ".psqlrc", ".sqliterc", ".duckdbrc", ".mongorc.js",
    ".mongoshrc.js", ".my.cnf", ".curlrc", ".wgetrc", ".ripgreprc", ".ackrc", ".ghcid", ".swiplrc", ".gnuplot",
    "startup.m",
    "renv/activate.R", "packrat/init.R", "jupyter_*_config.*", "jupyter_config.*", "ipython_*config.*", ".pdm-plugins",
    "pdm.toml", ".pdm.toml", "poetry.toml", ".pixi/config.toml", ".corepack.env", "pnpm-workspace.yaml",
    ".bazelversion",
    "*.bazelrc", ".buckconfig.d", ".plzconfig", ".plzconfig.*", ".pants.rc", ".pants.bootstrap", ".mill-opts",
    ".mill-jvm-opts", ".taskrc.yml", ".taskrc.yaml", "Directory.Build.rsp", "nuget.config", ".config/dotnet-tools.json",
    "docker-compose.override.yml", "docker-compose.override.yaml", "compose.override.yml", "compose.override.yaml",
    ".user.ini", ".htaccess",
)  # fmt: skip
"""Names of files and folders that other programs trust: a person is asked whatever the rules allow, and commands in the
sandbox find them read-only. One with a slash is that of a file or folder in another one. A folder counts with
everything in it.
"""

VERSION_CONTROL_SETTINGS: Final[tuple[str, ...]] = (
    ".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath", ".sl/config", ".jj/repo/config.toml",
    ".jj/workspace-config.toml",
    ".pijul/config", "_darcs/prefs",
)  # fmt: skip
"""Settings of version control other than git, which can name programs. Tools never write most of them; commands find
them read-only, and leave no new ones.
"""
_OWN_CONFIGURATION: Final = "perdure.toml", ".mcp.json", ".perdure/skills"
"""What the runtime and other agents read of a folder: one below the working folder may be somebody's next one."""
PREFERRED_NAMES: Final[tuple[tuple[str, ...], ...]] = (
    ("GNUmakefile", "makefile", "Makefile"), ("rakefile", "Rakefile", "rakefile.rb", "Rakefile.rb"),
    ("SConstruct", "Sconstruct", "sconstruct"),
    ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"),
    ("Taskfile.yml", "taskfile.yml", "Taskfile.yaml", "taskfile.yaml", "Taskfile.dist.yml"),
)  # fmt: skip
"""Names of which a program takes the first that is there: who runs it means the file that is there already."""
MADE_FOLDERS: Final = frozenset({
    "node_modules", "bower_components", ".venv", "venv", "site-packages", "dist-packages", "__pycache__", ".tox",
    ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", "vendor", "Pods", "target", ".git",
})  # fmt: skip
"""Names of folders that package managers and compilers fill with what others have published: commands may write
trusted names there. Nobody opens them to work in.
"""
_MOST_KNOWN: Final = 100_000
_MOST_LEADING: Final = 3
"""Names before the last one of a pattern."""


class TrustedNames:
    """A compiled set of patterns for names that other programs trust; most names cost one look-up."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [(each, [normalize_file_name(step) for step in each.split("/")]) for each in patterns]
        self._by_last: dict[str, list[tuple[str, list[str]]]] = {}
        self._wild: list[tuple[str, list[str]]] = []
        for pattern, steps in self._patterns:
            place = self._wild if "*" in steps[-1] else self._by_last.setdefault(steps[-1], [])
            place.append((pattern, steps))
        self._known: dict[str, tuple[tuple[str, list[str]], ...]] = {}
        self._rests: dict[tuple[str, ...], list[str]] = {}
        """By the first names of patterns with several: what follows them."""
        for pattern, steps in self._patterns:
            for count in range(1, len(steps)):
                self._rests.setdefault(tuple(steps[:count]), []).append("/".join(pattern.split("/")[count:]))

    def find(self, steps: Sequence[str]) -> tuple[str, int]:
        """Return the pattern that a path matches, or a folder above it, and how many names lead there; else `""`, 0."""
        for count, name in enumerate(steps, 1):
            for pattern, wanted in self.list_candidates(name):
                above = steps[count - len(wanted) : count - 1] if len(wanted) <= count else None
                if above is not None and [normalize_file_name(each) for each in above] == wanted[:-1]:
                    return pattern, count
        return "", 0

    def find_in_any_spelling(self, steps: Sequence[str]) -> str:
        """Return the pattern that a path matches on some file system: one where a name ends at a colon, too."""
        return self.find(steps)[0] or self.find(normalize_path_names(steps, whole=False))[0]

    def list_rests(self, steps: Sequence[str]) -> list[str]:
        """Return what follows the names of a path in the patterns that begin with them, such as `config.toml`.

        A link with such a name leads to what programs trust, wherever that lies.
        """
        folded = [normalize_file_name(each) for each in steps[-_MOST_LEADING:]]
        return [rest for at in range(len(folded)) for rest in self._rests.get(tuple(folded[at:]), ())]

    def list_candidates(self, name: str) -> tuple[tuple[str, list[str]], ...]:
        """Return the patterns whose last name a name matches; empty for most names."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            plain = normalize_file_name(name)
            wild = [each for each in self._wild if fnmatchcase(plain, each[1][-1])]
            known = self._known[name] = (*self._by_last.get(plain, ()), *wild)
        return known


TRUSTED: Final = TrustedNames(TRUSTED_NAMES)
"""The names that other programs trust."""
RANKED_NAMES: Final = frozenset([each for group in PREFERRED_NAMES for each in group])
_PREFERRED: Final = frozenset([each for group in PREFERRED_NAMES for each in group[:-1]])
KEPT_FROM_COMMANDS: Final = TrustedNames((*TRUSTED_NAMES, *VERSION_CONTROL_SETTINGS, *_OWN_CONFIGURATION))
"""The names that commands in the sandbox find read-only, and leave no new files under."""


def list_preferred(names: Collection[str]) -> list[tuple[str, list[str]]]:
    """Return the names in a folder that a program takes in the place of others that are there, with these."""
    if _PREFERRED.isdisjoint(names):
        return []
    present = [[each for each in group if each in names] for group in PREFERRED_NAMES]
    return [(name, group[at:]) for group in present for at, name in enumerate(group[:-1], 1)]


def add_caution(target: PathTarget) -> PathTarget:
    """Return the target of a tool that writes, with the reason to ask a person if other programs trust its name."""
    root = split_path(target.root)
    steps = split_path(target.path)
    below = steps[len(root) :] if steps[: len(root)] == root else steps
    pattern = TRUSTED.find_in_any_spelling(below)
    return replace(target, caution=f"other programs trust files like {pattern!r}") if pattern else target
