"""The smallest agent: one model, one prompt, one outcome.

The model is the offline demonstration model, so nothing but Python is needed.
"""

from perdure import Agent

agent = Agent("demo", instructions="Be brief.")
outcome = agent.run_sync("Hello!")

print(outcome.text)
print(f"status: {outcome.status}, turns: {outcome.turns}, tokens: {outcome.usage.total_tokens}")
