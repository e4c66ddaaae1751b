"""What decides whether work is good: graders, evaluations, and reviews of branches."""
