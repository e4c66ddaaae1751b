"""Review of a git branch by agents: findings with severity, place and fix, from one model or from several that agree.

`BranchReviewer(["anthropic", "openai"], base="main").review()` returns a `Review`, and `render_review` a page of it.
"""

from .markdown import render_review
from .review import Finding, ModelReview, Review, ReviewedFinding, Severity
from .reviewer import BranchReviewer

__all__ = ["BranchReviewer", "Finding", "ModelReview", "Review", "ReviewedFinding", "Severity", "render_review"]
