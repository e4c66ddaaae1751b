"""Promises of Perdure, and the tests that check them.

    python -m tests.promises      writes the lists of docs/reliability.md anew

A promise is a sentence with a name, `area:what`. The tests that keep it are named in `KEPT_BY`; a test may also say so
itself, with the mark `promise("area:what")`. tests/test_promises.py ties the three together: every promise has a test,
every test that is named exists, and the page says the same.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reliability.md"

PROMISES: dict[str, str] = {
    # -- calls ---------------------------------------------------------------------------------------------------------
    "calls:one-result": "Every call gets exactly one result, whatever the tool does.",
    "calls:order": "The transcript lists results in the order of their calls, in whatever order they finish.",
    "calls:intent-first": "A reply is in the log before any of its calls begins, and an intent before its effect.",
    "calls:waves": (
        "The intents of calls that begin together are one append. It is synced to disk unless all calls are reads."
    ),
    "calls:mistakes-go-back": "The model gets every error that it made in a call; its other calls still run.",
    "calls:cut-off": "Calls in a truncated reply are never made.",
    "calls:bounded": "The limit on concurrent calls is never exceeded, and a tool that is not parallel runs alone.",
    "calls:no-repeat": "A tool that may not run twice is not retried, unless it reports that nothing happened.",
    "calls:timeout": "A call that exceeds its timeout ends as timed out, even when its tool ignores the timeout.",
    "calls:threads": "A tool that is a plain function never blocks the event loop.",
    "calls:fair-threads": "Blocking tools of one session do not take all threads, and sessions that wait take turns.",
    "calls:per-reply": (
        "Calls of a reply beyond the limit get a result without running; the work grows linearly with the number of "
        "calls."
    ),
    "calls:schemas": (
        "A JSON Schema that could take too long to check is refused, with the reason, before the first call; the work "
        "of checking a call is bounded."
    ),
    "calls:isolated": (
        "When a call of an isolated tool is cancelled or times out, its process is killed with everything that it "
        "started."
    ),
    "calls:commands-end": (
        "Everything that a command started ends with the command: at its end, at its deadline, when it is cancelled, "
        "and within two seconds of the death of the program that runs it."
    ),
    "calls:commands-decided": (
        "Each part of a command line that may do more than read needs a rule or an approval; a line that cannot be "
        "split with certainty needs an approval as a whole."
    ),
    "calls:data-flow": (
        "Once the model has seen private data and untrusted text, a call that can send data out needs an approval of "
        "exactly its arguments, whatever the rules allow."
    ),
    "calls:egress": (
        "A request of the web tools connects only to public addresses, and to the very address that was checked: "
        "however a URL is written, whatever its host name resolves to, and wherever it redirects."
    ),
    # -- the model -----------------------------------------------------------------------------------------------------
    "model:failure-is-an-outcome": "Any exception of a model becomes a failed outcome that contains the work so far.",
    "model:no-half-replies": (
        "A reply that breaks off, or is empty for no stated reason, is reported as discarded and never stored as an "
        "answer."
    ),
    "model:stated-stops": (
        "A reply without text that ends for a stated reason (`length`, `content_filter`, `stop_sequence`) ends the run "
        "as `stopped` with that reason, after one request, and its tokens are counted."
    ),
    "model:provider-items": (
        "A reply that has nothing but items that the provider made itself (a search, an image, code that it ran) is "
        "kept after one request, and a turn that the provider pauses is gone on with, within the limits."
    ),
    "model:retry-is-told": (
        "A retry waits as long as the provider asks, emits an event, and discards the text shown before it."
    ),
    "model:failover-before-the-first-word": (
        "A failover happens only before the first output, and its error lists every failure."
    ),
    "model:any-values": (
        "Whatever numbers and texts a provider sends (negative or huge counts, lone surrogates, NUL), the reply is "
        "stored and the session stays readable."
    ),
    "model:call-ids": "Call ids are unique in their session and well formed, whatever the provider sends.",
    # -- wires ---------------------------------------------------------------------------------------------------------
    "wire:recordings": "Every recorded provider response is decoded, with the same result in chunks of any size.",
    "wire:cut-off": (
        "A response that is truncated at any byte is never a finished message, and half a call is not a call."
    ),
    "wire:next-request": "The request after a recorded exchange is equivalent to the one that was recorded.",
    "wire:rules": (
        "No request breaks a rule of its provider, and every request that a provider accepted passes our checks."
    ),
    "wire:any-two": "A session with tools, thinking and images can move from any wire to any other, and back.",
    "wire:thinking": "Thinking is sent back, byte for byte, to the model that wrote it, and to no other model.",
    "wire:notes": "Content that a model does not support is replaced by a note, and never dropped silently.",
    "wire:usage": "Usage is what the provider reported: never invented, and marked exact only when it is complete.",
    "wire:errors": "Every provider error, in whatever form, becomes a Perdure error of the right class.",
    "wire:same-bytes": (
        "A message is encoded once, and the request of a longer conversation begins with the same bytes."
    ),
    "wire:schemas": (
        "A schema that is adapted to a provider breaks none of its rules and accepts all values of the original."
    ),
    "wire:one-tool": "A tool that a provider rejects is left out with a warning, and the model stays usable.",
    "wire:json-tools": "In JSON tool mode, a model makes complete calls or none, in chunks of any size.",
    "wire:real-server": "Three wires work with a real server of another project, with tools and schemas.",
    "wire:probe": "The results of a probe of an endpoint are true, and are used when the model is opened.",
    # -- keys and the network ------------------------------------------------------------------------------------------
    "key:secret": (
        "An API key appears in no error (even if the provider repeats the key), no `repr`, and no request shown to a "
        "tap."
    ),
    "key:no-storm": (
        "After a rate limit error, all requests with the key wait; then one goes first, and the others gradually."
    ),
    "key:shared": "The limits of a key apply to the whole process, in order of arrival, and waiting is reported.",
    "key:what-to-set": (
        "A missing key and an unknown name are reported when the model is named, with the setting that is needed."
    ),
    "network:no-hang": (
        "Waiting for a response always ends: if it never begins, if it stops, and if it only sends pings."
    ),
    "network:bounded": (
        "A response above the size limit is abandoned, also when only its decompressed form is too large."
    ),
    "network:let-go": "A consumer that stops reading closes the connection at once, and leaves nothing open.",
    # -- outputs, caches -----------------------------------------------------------------------------------------------
    "output:value": "An output is a value of its type, or an error; the work is kept in both cases.",
    "output:repair": "An invalid answer is sent back with every problem, as often as configured and no more.",
    "output:partial": "A partial output that is shown during streaming is a part of the final value.",
    "cache:prefix": (
        "Each request of a session repeats the previous request as its prefix; if it cannot, the log gives the reason."
    ),
    # -- what the model is sent ----------------------------------------------------------------------------------------
    "view:told": "The log records every change to earlier context that is more than an addition.",
    "view:whole": "A summary shortens what is sent, never what is stored: the transcript stays complete.",
    "view:valid": (
        "The messages that are sent are valid and fit the context window, also after any number of summaries."
    ),
    "view:harmless": "A summary that fails, is cancelled or would not help changes nothing.",
    # -- a run ---------------------------------------------------------------------------------------------------------
    "run:cancel-anywhere": (
        "A run can be cancelled at any point: results are kept, the transcript is valid, nothing leaks."
    ),
    "run:cancel-is-honest": (
        "A call that a cancel interrupts has an uncertain result; a call that never began has a result that says so."
    ),
    "run:cancel-modes": "A cancel takes effect now, after the running calls, or after the whole turn, as requested.",
    "run:left-behind": "A run that ignores its cancel is abandoned, and cannot write into a later run.",
    "run:unabortable": "A cancel waits for a tool that must not be aborted.",
    "run:outcome": (
        "A run that has started ends with an outcome; it raises only if the store fails or another process took over "
        "the session."
    ),
    "run:steering": (
        "Steering is inserted after the results of the turn, and takes precedence over every reason to stop."
    ),
    "run:limits": "A limit is an outcome that contains the work; messages for the next run stay queued.",
    "run:engines": (
        "Limits, usage counts and the log work in every engine; a tool call made by an engine is not repeated after a "
        "crash."
    ),
    "run:added-tools": (
        "A tool added during a run is offered again after a question, a resume or a restart; a tool for which this is "
        "impossible is refused when it is added."
    ),
    "run:transcript": "The transcript is valid at any time: a reply with calls enters it together with its results.",
    "run:guardrails": "A model that repeats itself is warned, and finally stopped.",
    "run:event-order": "Events occur in the order that docs/concepts/events.md shows.",
    # -- permissions ---------------------------------------------------------------------------------------------------
    "permission:closed": "A call runs only if no rule denies it and something allows it; a missing answer is a denial.",
    "permission:heard": (
        "No function that a program gives is taken and then not heard: it works plain and async, or is refused."
    ),
    "permission:final": "A question is about the arguments that will run, and its answer is stored before the intent.",
    "permission:one-question": "One question is asked for all the open calls of a reply.",
    "permission:scope": "A verdict applies exactly within its scope, and can be revoked.",
    "permission:targets": (
        "With typed targets, no spelling or link evades a denial, and nothing else is allowed than what a rule names."
    ),
    "permission:reads": (
        "No tool for files and no command of `bash` shows a file that `deny(target=path(…))` is about, unless a person "
        "agrees, or a rule allows by name a program of which it is not known what it reads."
    ),
    "permission:secrets": (
        "No command that runs unasked shows a file whose name means secrets, at any depth and from any commit."
    ),
    "permission:frozen": "What was shown is what runs: nothing changes the arguments between approval and effect.",
    "permission:bound": (
        "An approval holds only for the same tool, agent, store, tenant, project and session as it was given for."
    ),
    "permission:narrows": "By default, subagents, background agents and handoffs can only narrow permissions.",
    # -- posts, questions, the inbox -----------------------------------------------------------------------------------
    "posts:anywhere": "Any process can post to a session, also while no process drives it.",
    "posts:once": "A post takes effect once, however often it is sent: one entry both records and consumes it.",
    "posts:late": "A post that arrives too late is recorded as such, and changes nothing.",
    "questions:kept": "A question is stored before it is asked, and is found again after a crash under the same id.",
    "questions:once": "A question is answered once: the first answer counts, from this process or another.",
    "questions:honest": (
        "An answer that cannot be used any more, because its run is over or its call died with its process, is refused."
    ),
    "questions:silence": "A missing answer counts as no, and so does a stored answer that was garbled.",
    "questions:settled": (
        "With effect `ask`, a person decides about an interrupted call, and the run waits for that answer."
    ),
    "questions:asks-first": (
        "A question that a tool asks before it begins is asked and answered once, whichever process is killed."
    ),
    "inbox:once": "An inbox item goes from pending to resolved to consumed, and the model gets it once.",
    "inbox:wakes": "A resolved inbox item can start a run.",
    "inbox:subagents": (
        "The result of a subagent's inbox item is given to the subagent, or, if that has ended, to the agent above it."
    ),
    # -- agents that work for agents -----------------------------------------------------------------------------------
    "subagents:crash": "An agent and its subagents can be killed anywhere: each task starts once and ends once.",
    "subagents:transcripts": "The transcripts of an agent and its subagents are valid wherever the log is cut.",
    "subagents:background": "A background task survives its run and a crash, and its end is reported once.",
    "subagents:questions": (
        "A question of a subagent is asked on the session, and the answer reaches it, even days later."
    ),
    "subagents:limits": "The usage of a subagent counts for its parents, and their limits and budgets apply to it.",
    "subagents:cancel": "A cancel ends the subagents too, and leaves nothing open.",
    # -- secrets -------------------------------------------------------------------------------------------------------
    "secrets:nowhere": (
        "A secret of a vault is in no log, event, error, request, export or file, in the encodings that the page on "
        "credentials lists."
    ),
    # -- files that people write ---------------------------------------------------------------------------------------
    "files:broken-skill": "A broken skill is skipped or repaired with one message, and affects no other skill.",
    "files:broken-configuration": (
        "A broken configuration is rejected with the line of each fault, whatever it contains."
    ),
    "files:bounded": (
        "No file blocks its reader: one that is too large, too deep or not a regular file is skipped or rejected."
    ),
    "files:trust": "A skill of a project is shown to no model before a user has approved its content.",
    # -- watchers ------------------------------------------------------------------------------------------------------
    "watchers:harmless": (
        "A watcher that raises, blocks or hangs affects neither the run nor the other watchers; an async one that "
        "blocks the event loop gets a tenth of its time after two calls, and the run waits a second for it at its end."
    ),
    "watchers:told": "A watcher that falls behind gets an event with the number of events that it missed.",
    "watchers:backpressure": "A stream with backpressure loses nothing.",
    # -- the log -------------------------------------------------------------------------------------------------------
    "log:acknowledged-survives": "Every acknowledged entry survives kill -9.",
    "log:barriers": "A barrier is on the disk, with everything before it, before the run continues.",
    "log:all-or-nothing": "An append is stored completely or not at all, and a repeated one adds nothing.",
    "log:one-queue": (
        "In one process and event loop, runs of one session wait for their turn, whichever `Session` objects start "
        "them."
    ),
    "log:one-driver": "Of several processes, one drives a session; the appends of a replaced one are rejected.",
    "log:takeover": (
        "A session whose driver has died can be opened at once (from another machine, when its lease has expired); a "
        "live driver does not lose its session this way."
    ),
    "log:any-content": (
        "No content can make storing fail, and everything stored can be read back. A message or result has up to 80 "
        "million characters in every store; a longer result becomes an error result that says so, a longer reply ends "
        "as `length`, a longer prompt is refused."
    ),
    "log:unknown-kinds": (
        "Unknown event kinds of a newer version are preserved; a critical one stops the reader with advice."
    ),
    "log:power": "A power cut at any moment loses nothing that was on the disk, and leaves a prefix of the log.",
    "log:disk-errors": "When any disk operation fails, once or permanently, nothing acknowledged is lost.",
    "log:fenced": (
        "A driver that was paused and replaced writes nothing more. It begins no effect more than 20 ms after its "
        "lease was last confirmed (on a store that takes longer to answer, twice its time), except one if it was "
        "paused right before that effect. Tools get the fence, by which a receiver can refuse what is late."
    ),
    "log:races": (
        "If several processes open a session at the same moment, one gets it, and the error in the others names that "
        "process."
    ),
    "log:same-everywhere": "Every store behaves like the same small model, for any operations in any order.",
    "log:damage": (
        "A damaged file keeps every good entry before and after the damage, and the missing ones are reported."
    ),
    "log:bit-flips": (
        "Changed bytes of a file store, or of an SQLite file with checksums, are reported and never taken for content, "
        "and no effect is repeated after the damage."
    ),
    "log:older-versions": "Logs of older versions are readable, and a file is migrated completely or not at all.",
    "log:full-disk": "On a full or failing disk acknowledged entries survive, and the error gives the cause.",
    "log:foreign-files": "A file of another program, a damaged file or a file of a newer format is left unchanged.",
    # -- after a crash -------------------------------------------------------------------------------------------------
    "crash:anywhere": "A process may be killed at any moment: another one continues, and the log is valid.",
    "crash:together": (
        "Processes that share sessions may be killed, paused, ended or cancelled at any time: everything acknowledged "
        "is in the log exactly once, and each result says what happened."
    ),
    "crash:interrupts": (
        "A signal whose handler raises loses nothing that was acknowledged, keeps no other process from writing, and "
        "leaves nothing hanging."
    ),
    "crash:resume": "An interrupted run continues where it was; a call that only reads is repeated.",
    "crash:no-second-effect": "A call that may have happened is not repeated: its result is unknown.",
    "crash:next-prompt": "A new prompt after a crash closes the interrupted run first, and the repair is appended.",
    "crash:parked": "A run that was resumed three times without progress is parked.",
    "crash:schedules": (
        "A due time or a trigger of a schedule is fired once, also with several processes and after a kill. An "
        "interrupted run is continued, and no effect happens twice."
    ),
    "crash:workers": "Workers that are killed leave their sessions to other workers, and every session is finished.",
    "crash:unparked": "A parked run can be resumed, and its `input_id` then returns the outcome of the resumed run.",
    "crash:one-submission": "A prompt that is sent again with the same input id is answered once, also across a crash.",
    "crash:always": "The run object in memory can be dropped after any entry, and the run continues from the log.",
    "crash:long": "A session of 500 turns that is killed repeatedly reaches its end, and no effect happens twice.",
    "crash:housekeeping": "Forks, redactions, deletions and posts are done completely or not at all.",
    "crash:shutdown": "A process that is asked to exit gives its tools time, and the next one continues its runs.",
    "crash:harness": "The fault tests find the bugs that are planted for them.",
    # -- keeping -------------------------------------------------------------------------------------------------------
    "keeping:forks": (
        "A fork begins with the entries of its original session, continues separately, and remains when the original "
        "is deleted."
    ),
    "keeping:no-byte": (
        "Redaction and deletion leave no byte of the content in the store or its search index (in that of PostgreSQL, "
        "after the next vacuum)."
    ),
    "keeping:search": "A search finds everything that was appended, and nothing that was redacted or deleted.",
    "keeping:index": "A lost or damaged search index is rebuilt, and never blocks an append.",
    "keeping:backup": (
        "A backup is complete, can be made while the store is in use, and can be restored. One with a changed byte is "
        "refused."
    ),
    "keeping:prune": "Retention removes the oldest sessions, and none that is driven or waits for an answer.",
    "keeping:apart": "Namespaces of a store, and tenants, are isolated from one another.",
    "keeping:replay": "A replay with the same agent finds no difference; otherwise it reports the first one.",
    "keeping:moved": "A session survives export and import, and an import replaces nothing.",
    # -- budgets -------------------------------------------------------------------------------------------------------
    "workspace:inside": (
        "File and search tools read, list and write nothing outside their folder, even while another process replaces "
        "folders by links."
    ),
    "workspace:fresh": "A file that a session has not read, or that has changed since, is not changed by its tools.",
    "workspace:once": "A change of a file that a crash interrupts is made exactly once by the run that continues.",
    "workspace:session": (
        "A coding agent that is killed in the middle of its work goes on in another process, with each effect at most "
        "once, and its changes can be undone."
    ),
    "workspace:undo": "The file changes of a run can be undone and redone; what others have changed since stays.",
    "budget:holds": "Runs that share a budget never spend and reserve more than its ceiling together.",
    "budget:crash": "A request that a crash left without a reply counts for limits and budgets, with an estimate.",
    "budget:last-turn": "Near the end of a budget the model concludes, without tools.",
}

_CODING = "tests/faults/test_coding_session.py::test_"
_LOOP = "tests/core/test_loop.py::test_"
_CALLS = "tests/core/test_loop_calls.py::test_"
_EFFECT = "tests/core/test_tool_call_execution.py::test_"
_STOP = "tests/core/test_loop_cancel.py::test_"
_ANSWERABLE = "tests/runtime/test_lost_questions.py::test_"
_FENCE = "tests/core/test_loop_fence.py::test_"
_LATE = "tests/faults/test_late_effects.py::test_"
_CONTENDED = "tests/faults/test_contended_appends.py::test_"
_LIMITS = "tests/core/test_loop_limits.py::test_"
_RUN_MODEL = "tests/core/test_aside_model_requests.py::test_"
_DIRECT = "tests/core/test_engine_tool_calls.py::test_"
_ENGINES = "tests/engines/test_engines.py::test_"
_ADDED = "tests/core/test_added_tools.py::test_"
_PERMIT = "tests/core/test_loop_permission.py::test_"
_RUN = "tests/core/test_run.py::test_"
_FOLD = "tests/core/test_fold.py::test_"
_WRAP = "tests/core/test_model_and_tool_wrappers.py::test_"
_WATCH = "tests/core/test_watch.py::test_"
_GATE = "tests/core/test_permissions.py::test_"
_BOUND = "tests/runtime/test_bound_approvals.py::test_"
_DENIED = "tests/security/test_denied_files.py::test_"
_NAMESPACED = "tests/runtime/test_namespaced_sessions.py::test_"
_SPELLINGS = "tests/security/test_targets.py::test_"
_CODEC = "tests/core/test_log_codec.py::test_"
_LARGE = "tests/stores/test_large_values.py::test_"
_LONG = "tests/core/test_content_limit.py::test_"
_SQLITE = "tests/stores/test_sqlite.py::test_"
_FAULTS = "tests/stores/test_sqlite_faults.py::test_"
_FILE = "tests/stores/test_sqlite_file.py::test_"
_CANCEL = "tests/faults/test_cancellation.py::test_"
_KILL = "tests/faults/test_kill.py::test_"
_RESUME = "tests/cli/test_run_and_resume.py::test_"
_EVENTS = "tests/docs/test_events.py::test_"
_DRIVER = "tests/runtime/test_driver.py::test_"
_SCHEDULED = "tests/scheduling/test_processes.py::test_"
_CHANNEL = "tests/runtime/test_session_channel.py::test_"
_KEEPING = "tests/runtime/test_stored_session.py::test_"
_QUESTION = "tests/core/test_question.py::test_"
_LEDGER = "tests/core/test_shared_budget.py::test_"
_MAILBOX = "tests/core/test_run_mailbox.py::test_"
_POWER = "tests/faults/test_power.py::test_"
_WAL_SYNC = "tests/stores/test_sqlite_wal_sync.py::test_"
_DISK = "tests/faults/test_disk.py::test_"
_FLIPS = "tests/faults/test_bit_flips.py::test_"
_RACES = "tests/faults/test_races.py::test_"
_MACHINE = "tests/stores/test_state_machine.py::test_"
_POSTGRES = "tests/stores/test_postgres.py::test_"
_FILE_FAULTS = "tests/stores/test_file_faults.py::test_"
_FILE_DAMAGE = "tests/stores/test_file_damage.py::test_"
_FILE_MAILBOX = "tests/stores/test_file_mailbox.py::test_"
_LINEAGE = "tests/stores/test_file_lineage.py::test_"
_SQLITE_UPKEEP = "tests/stores/test_sqlite_upkeep.py::test_"
_TREE = "tests/stores/test_sqlite_tree.py::test_"
_SEARCH = "tests/stores/test_sqlite_search.py::test_"
_DAMAGE = "tests/stores/test_sqlite_search_damage.py::test_"
_UPKEEP = "tests/test_store_maintenance.py::test_"
_SHUTDOWN = "tests/test_shutdown.py::test_"
_REPLAY = "tests/test_replay.py::test_"
_TRANSFER = "tests/test_session_transfer.py::test_"
_CHAT = "tests/models/openai_chat/"
_RESPONSES = "tests/models/openai_responses/"
_ANTHROPIC = "tests/models/anthropic/"
_GEMINI = "tests/models/gemini/"
_BEDROCK = "tests/models/bedrock/"
_RECORDED = "test_recordings.py::test_"
_OVER_HTTP = "tests/wire/test_over_http.py::test_"
_REAL = "tests/wire/test_real_server.py::test_"
_ENDPOINT = "tests/models/test_http_model.py::test_"
_THROTTLE = "tests/models/test_throttle.py::test_"
_FLOW = "tests/models/test_throttle_state.py::test_"
_SCHEMAS = "tests/models/test_schemas.py::test_"
_REFUSAL = "tests/models/test_provider_errors.py::test_"
_QUARANTINE = "tests/models/test_rejected_tools.py::test_"
_OPENING = "tests/models/test_model_builder.py::test_"
_JSON_REPLY = "tests/models/test_json_reply.py::test_"
_PROBE = "tests/models/probe/"
_HTTP = "tests/net/test_pooled_http_transport.py::test_"
_POOL = "tests/net/test_connection_pool.py::test_"
_TAP = "tests/net/test_tap.py::test_"
_OUTPUT = "tests/runtime/test_output.py::test_"
_PARTIAL = "tests/runtime/test_partial_json.py::test_"
_CACHE = "tests/core/test_prompt_cache_misses.py::test_"
_EXTENSION = "tests/runtime/test_extension.py::test_"
_COMPACTION = "tests/context/test_compaction.py::test_"
_SUMMED_UP = "tests/context/test_compaction_of_sessions.py::test_"
_SHORTENED = "tests/context/test_compaction_properties.py::test_"
_SLOT = "tests/core/test_display_slot.py::test_"
_ATTACHED = "tests/runtime/subagents/test_child_run.py::test_"
_DELEGATION = "tests/runtime/subagents/test_delegation_tools.py::test_"
_FAMILIES = "tests/faults/test_families.py::test_"
_OUTSIDE = "tests/faults/test_outside.py::test_"
_ASKED = "tests/faults/test_questions.py::test_"
_PLANTED = "tests/credentials/test_planted_secrets.py::test_"
_SCATTERED = "tests/credentials/test_obfuscated_secret_finder.py::test_"
_REDACTION = "tests/runtime/test_redaction_across_agents.py::test_"
_SKILL = "tests/context/skills/test_broken.py::test_"
_TRUST = "tests/context/skills/test_trust.py::test_"
_FRONT_MATTER = "tests/context/test_front_matter.py::test_"
_CONFIG = "tests/configuring/test_broken_files.py::test_"
_LINKS = "tests/faults/test_symlink_races.py::test_"
_MARATHON = "tests/faults/test_long_session.py::test_"

KEPT_BY: dict[str, tuple[str, ...]] = {
    "calls:isolated": (
        "tests/core/test_tool_worker_process.py::test_a_tool_that_computes_is_gone_within_a_fifth_of_a_second_of_a_cancel",
        "tests/core/test_tool_worker_process.py::test_a_tool_is_killed_at_its_deadline",
        "tests/core/test_tool_worker_process.py::test_a_host_that_is_killed_leaves_no_worker",
    ),
    "calls:commands-end": (
        "tests/hosts/test_local_shell.py::test_a_command_is_ended_at_its_deadline_with_all_that_it_started",
        "tests/hosts/test_local_shell.py::test_what_ignores_the_first_signal_is_killed",
        "tests/hosts/test_local_shell.py::test_a_cancelled_command_is_gone_when_the_call_ends",
        "tests/hosts/test_local_shell.py::test_nothing_outlives_its_command",
        "tests/hosts/test_local_shell.py::test_a_host_that_is_killed_leaves_no_process_after_two_seconds",
        "tests/hosts/test_local_shell.py::test_a_host_that_dies_while_a_command_starts_leaves_no_process",
    ),
    "calls:commands-decided": (
        "tests/security/test_shell_bypasses.py::test_no_bypass_is_run_unasked",
        "tests/toolkits/test_command_line.py::test_bash_runs_nothing_that_a_split_line_does_not_have",
        "tests/toolkits/test_command_line.py::test_everything_else_proves_nothing",
    ),
    "calls:egress": (
        "tests/security/test_ssrf.py::test_no_url_leads_to_what_is_not_public",
        "tests/security/test_ssrf.py::test_no_redirect_leads_to_what_is_not_public",
        "tests/security/test_ssrf.py::test_an_answer_that_changes_between_check_and_connection_does_not_matter",
        "tests/security/test_ssrf.py::test_an_open_connection_is_not_moved_by_a_new_answer",
    ),
    "calls:data-flow": (
        "tests/core/test_data_flow.py::test_a_run_that_has_seen_both_sends_nothing_without_being_asked",
        "tests/core/test_data_flow.py::test_labels_survive_a_restart_and_the_gate_of_another_process_asks",
    ),
    "calls:one-result": (
        _EFFECT + "whatever_an_async_tool_raises_becomes_an_error_result",
        _EFFECT + "whatever_a_plain_tool_raises_becomes_an_error_result",
        _EFFECT + "whatever_one_of_several_tools_raises_leaves_the_others_alone",
        _CALLS + "whatever_a_tool_returns_becomes_content",
    ),
    "calls:order": (_CALLS + "results_stand_in_the_order_of_the_calls_whatever_finished_first",),
    "calls:intent-first": (
        _CALLS + "a_reply_is_stored_before_its_intents_and_they_before_the_effects",
        _CALLS + "a_call_that_waits_for_a_place_has_no_intent_yet",
    ),
    "calls:waves": (
        _CALLS + "the_intents_of_a_wave_are_one_append",
        _CALLS + "a_wave_that_only_reads_needs_no_barrier",
        _CALLS + "one_call_with_an_effect_makes_its_wave_a_barrier",
    ),
    "calls:mistakes-go-back": (
        _CALLS + "an_unknown_tool_is_answered_with_near_names_and_all_there_are",
        _CALLS + "bad_json_goes_back_to_the_model",
        _CALLS + "every_schema_error_is_told_with_its_path",
        _CALLS + "a_wrong_call_does_not_keep_its_neighbours_from_running",
    ),
    "calls:cut-off": (
        _CALLS + "calls_of_a_reply_that_was_cut_off_are_never_made_and_say_so",
        _LOOP + "calls_of_a_reply_that_was_cut_off_are_never_made",
    ),
    "calls:bounded": (
        _CALLS + "no_more_calls_run_at_once_than_the_limit_allows",
        _CALLS + "a_tool_that_is_not_parallel_is_a_barrier",
    ),
    "calls:no-repeat": (
        _EFFECT + "a_tool_that_may_not_run_twice_is_not_tried_again",
        _EFFECT + "a_tool_that_is_sure_that_nothing_happened_is_tried_again_whatever_its_effect",
        _EFFECT + "retries_are_off_by_default",
    ),
    "calls:timeout": (
        _EFFECT + "a_tool_that_takes_too_long_is_told_to_stop_and_timed_out",
        _EFFECT + "a_tool_that_ignores_its_timeout_is_left_behind",
    ),
    "calls:threads": (
        _EFFECT + "a_plain_function_does_not_hold_up_the_event_loop",
        "tests/core/test_thread_pool.py::test_a_function_that_never_returns_does_not_keep_the_process_from_ending",
    ),
    "calls:fair-threads": (
        "tests/core/test_thread_pool.py::test_blocking_tools_of_one_session_do_not_delay_a_tool_of_another",
        "tests/core/test_thread_pool.py::test_sessions_that_wait_take_turns",
    ),
    "calls:per-reply": (
        _CALLS + "calls_of_a_reply_above_the_limit_are_answered_without_running",
        _CALLS + "many_calls_in_one_reply_take_work_in_proportion",
    ),
    "calls:schemas": (
        "tests/core/test_tool.py::test_a_tool_whose_schema_could_take_too_long_to_check_is_refused_with_the_reason",
        "tests/core/test_validation_work_bound.py::test_no_value_takes_more_checks_or_has_more_errors_than_estimated",
        "tests/core/test_schema_checker.py::test_a_value_with_too_many_parts_for_its_schema_is_refused",
    ),
    "model:failure-is-an-outcome": (
        _LOOP + "whatever_a_model_raises_is_a_failed_outcome_that_keeps_the_work",
        _LOOP + "a_model_that_does_not_stream_is_a_failed_outcome",
    ),
    "model:no-half-replies": (
        _LOOP + "a_stream_that_ends_without_its_end_is_a_reply_cut_off",
        _LOOP + "a_reply_without_words_or_calls_fails_the_run_and_is_not_kept",
    ),
    "model:stated-stops": (
        _LOOP + "a_reply_without_words_that_ended_for_a_stated_reason_stops_the_run_and_is_kept",
        _WRAP + "an_empty_answer_that_ended_for_a_stated_reason_is_not_asked_for_again",
    ),
    "model:provider-items": (
        "tests/models/test_empty_replies.py::test_a_reply_of_items_that_the_provider_made_is_one_request_and_is_kept",
        "tests/models/test_empty_replies.py::test_a_turn_that_anthropic_pauses_is_gone_on_with",
        _LOOP + "a_paused_reply_is_sent_back_as_it_is_and_the_run_goes_on",
        _LOOP + "turns_that_are_paused_for_ever_reach_the_limit",
    ),
    "model:retry-is-told": (
        _WRAP + "an_error_that_may_pass_is_waited_out_and_the_waiting_is_shown",
        _WRAP + "a_provider_that_asks_for_a_longer_wait_gets_it_up_to_the_maximum",
        _LOOP + "words_shown_before_a_retry_are_told_as_discarded",
    ),
    "model:failover-before-the-first-word": (
        _WRAP + "any_error_of_a_model_asks_the_next_one",
        _WRAP + "a_model_that_has_begun_is_never_replaced",
        _WRAP + "when_all_fail_the_error_has_every_attempt",
        _LOOP + "a_failover_is_told_and_the_run_goes_on",
    ),
    "model:any-values": tuple(
        f"tests/stores/test_hostile_replies.py::test_any_reply_is_stored_in_{store}"
        for store in ("memory", "files", "sqlite", "postgres")
    ),
    "model:call-ids": (
        _LOOP + "a_malformed_call_id_is_replaced_and_the_providers_kept",
        _LOOP + "a_call_id_that_was_used_before_is_replaced",
    ),
    "wire:recordings": (
        _CHAT + _RECORDED + "a_recorded_answer_is_understood_in_pieces_of_any_size",
        _RESPONSES + _RECORDED + "a_recorded_answer_is_understood_however_it_is_cut_into_pieces",
        _ANTHROPIC + _RECORDED + "a_recorded_answer_is_understood_however_it_is_cut_into_pieces",
        _GEMINI + _RECORDED + "the_pieces_in_which_an_answer_arrived_make_no_difference",
        _BEDROCK + _RECORDED + "a_recorded_answer_is_understood_however_it_is_cut_into_pieces",
        _OVER_HTTP + "every_recording_comes_through_the_network_as_it_is",
        _RESPONSES + "test_golden.py::test_a_stream_says_the_same_in_whatever_pieces_it_comes",
        "tests/net/test_sse.py::test_events_do_not_depend_on_where_the_bytes_are_cut",
        "tests/models/ollama/test_ollama.py::test_a_recorded_answer_is_understood_however_it_is_cut_into_pieces",
    ),
    "wire:cut-off": (
        _CHAT + _RECORDED + "a_stream_that_is_cut_off_is_never_taken_for_a_whole_one",
        _RESPONSES + _RECORDED + "a_recorded_answer_that_is_cut_off_anywhere_is_never_finished",
        _ANTHROPIC + _RECORDED + "a_recorded_answer_that_is_cut_off_is_never_taken_for_a_whole_one",
        _GEMINI + _RECORDED + "a_recorded_answer_that_is_cut_off_is_never_finished",
        _BEDROCK + _RECORDED + "a_recorded_answer_that_is_cut_off_is_never_taken_for_a_whole_one",
        _OVER_HTTP + "an_answer_that_is_cut_off_is_never_taken_for_a_whole_one",
        _ENDPOINT + "an_answer_that_is_cut_is_never_taken_for_a_whole_one",
        _GEMINI + "test_decode.py::test_half_a_call_is_never_told",
        "tests/models/ollama/test_ollama.py::test_a_stream_that_is_cut_off_is_never_finished",
    ),
    "wire:next-request": (
        _CHAT + _RECORDED + "the_next_request_is_the_one_that_was_recorded",
        _RESPONSES + _RECORDED + "a_recorded_conversation_is_continued_by_us_as_it_was",
        _ANTHROPIC + _RECORDED + "the_next_request_of_a_recorded_conversation_is_the_one_we_would_send",
        _GEMINI + _RECORDED + "the_next_request_of_a_conversation_is_the_one_that_was_recorded",
        _BEDROCK + _RECORDED + "the_next_request_of_a_recorded_conversation_is_the_one_we_would_send",
        "tests/models/ollama/test_ollama.py::test_the_next_request_of_a_recorded_conversation_is_the_one_we_would_send",
    ),
    "wire:rules": (
        _CHAT + "test_encode.py::test_what_would_be_refused_is_not_sent",
        _ANTHROPIC + "test_encode.py::test_a_call_without_a_result_is_not_sent",
        _GEMINI + "test_encode.py::test_a_conversation_that_would_be_refused_is_not_sent",
        _BEDROCK + "test_encode.py::test_a_call_without_a_result_is_not_sent",
        _RESPONSES + "test_lint.py::test_a_conversation_that_would_be_refused_is_told",
        _CHAT + _RECORDED + "what_was_accepted_is_accepted",
        _RESPONSES + _RECORDED + "a_recorded_request_that_was_taken_breaks_no_rule",
        _ANTHROPIC + _RECORDED + "a_recorded_request_that_was_accepted_breaks_no_rule",
        _GEMINI + _RECORDED + "a_request_that_was_accepted_breaks_no_rule",
        _BEDROCK + _RECORDED + "a_recorded_request_that_was_accepted_breaks_no_rule",
        "tests/models/ollama/test_ollama.py::test_a_conversation_in_the_wrong_order_is_not_sent",
    ),
    "wire:any-two": ("tests/models/test_any_two_wires.py::test_a_session_moves_to_another_wire_and_back",),
    "wire:thinking": (
        _CHAT + "test_encode.py::test_blocks_of_reasoning_go_back_as_they_came_and_without_the_words",
        _CHAT + "test_encode.py::test_nobody_gets_the_thinking_of_another",
        _RESPONSES
        + "test_message_encoding.py::test_reasoning_comes_back_to_its_author_in_front_of_the_call_that_it_led_to",
        _RESPONSES + "test_message_encoding.py::test_reasoning_of_another_model_is_dropped_and_its_marks_with_it",
        _ANTHROPIC + "test_encode.py::test_thinking_goes_back_to_its_author_alone",
        _GEMINI + "test_message_encoding.py::test_the_author_gets_everything_back_where_it_was",
        _GEMINI + "test_message_encoding.py::test_nobody_else_gets_thoughts_and_signatures",
        _BEDROCK + "test_encode.py::test_thinking_goes_back_to_its_author_alone",
        "tests/models/test_think_tag_writer.py::test_no_model_gets_its_thinking_back_as_something_that_it_said",
    ),
    "wire:notes": (
        _CHAT + "test_encode.py::test_what_a_model_cannot_look_at_is_told_in_a_note",
        _RESPONSES + "test_message_encoding.py::test_what_a_model_cannot_take_is_told_to_it",
        _ANTHROPIC + "test_encode.py::test_what_the_model_cannot_take_is_told_in_a_note",
        _GEMINI + "test_media.py::test_a_model_that_takes_nothing_is_told",
        _BEDROCK + "test_encode.py::test_what_the_model_cannot_take_is_told_in_a_note",
        "tests/models/ollama/test_ollama.py::test_media_that_cannot_be_sent_become_a_note",
    ),
    "wire:usage": (
        _CHAT + "test_decode.py::test_nothing_is_made_up_when_no_usage_is_told",
        _CHAT + "test_decode.py::test_usage_that_was_told_before_the_end_is_not_all_of_it",
        _RESPONSES + "test_decode.py::test_usage_is_what_was_told_and_never_made_up",
        _ANTHROPIC + "test_decode.py::test_usage_is_exact_only_when_all_of_it_was_told",
        _GEMINI + "test_decode.py::test_usage_that_was_not_told_completely_is_never_called_exact",
        _BEDROCK + "test_decode.py::test_an_answer_without_a_word_about_usage_says_nothing_about_it",
        "tests/core/test_outcome.py::test_the_cost_that_the_provider_reports_wins_and_is_marked",
    ),
    "wire:errors": (
        _REFUSAL + "any_answer_becomes_an_error_of_ours_of_bounded_length",
        _REFUSAL + "every_recorded_error_is_classified",
        _REFUSAL + "an_error_inside_a_stream_is_judged_by_what_it_says",
        _ENDPOINT + "an_error_inside_a_stream_is_classified",
        _ENDPOINT + "a_web_page_is_no_answer",
    ),
    "wire:same-bytes": (
        "tests/models/test_encoding_memo.py::test_a_message_is_encoded_once_while_its_conversation_grows",
        "tests/models/test_encoding_memo.py::test_what_comes_out_never_depends_on_what_was_asked_before",
        _ANTHROPIC + "test_encode.py::test_each_message_is_encoded_once_and_marks_move_with_the_end",
        _CHAT + "test_encode.py::test_the_same_list_of_tools_gives_the_same_bytes",
    ),
    "wire:schemas": (
        _SCHEMAS + "what_is_made_of_any_schema_breaks_no_rule",
        _SCHEMAS + "what_fits_a_schema_fits_what_is_made_of_it",
        _SCHEMAS + "what_a_model_says_under_strictness_fits_a_schema_that_can_be_strict",
        _SCHEMAS + "every_recorded_schema_is_compiled_without_breaking_a_rule",
    ),
    "wire:one-tool": (
        _ENDPOINT + "one_tool_that_is_refused_is_left_out_and_told",
        _QUARANTINE + "recorded_refusals_of_schemas_are_blamed_on_their_tool",
        _QUARANTINE + "an_unrelated_error_leaves_all_tools_in",
        _QUARANTINE + "a_tool_that_has_changed_is_tried_again",
    ),
    "wire:json-tools": (
        _JSON_REPLY + "a_call_that_is_cut_off_anywhere_is_no_call",
        _JSON_REPLY + "a_call_says_the_same_in_any_pieces",
        "tests/models/test_json_tools.py::test_an_agent_calls_its_tools_and_answers",
        "tests/models/test_local.py::test_an_agent_calls_its_tool_and_answers",
    ),
    "wire:real-server": (
        _REAL + "a_reply_is_streamed_and_its_usage_told",
        _REAL + "a_reply_is_held_to_a_schema",
        _REAL + "an_agent_calls_its_tool_over_http",
        _REAL + "it_keeps_the_contract_of_models",
    ),
    "wire:probe": (
        _PROBE + "test_probe.py::test_what_is_learned_is_the_truth",
        _PROBE + "test_probe.py::test_what_is_kept_is_used_when_the_model_is_opened",
        _PROBE + "test_real_server.py::test_what_is_learned_of_a_real_server_is_the_truth",
    ),
    "key:secret": (
        _ENDPOINT + "no_error_carries_the_key",
        _ENDPOINT + "a_key_that_the_provider_repeats_is_not_told",
        _ENDPOINT + "it_shows_neither_key_nor_password",
        _OPENING + "a_key_is_in_no_representation_of_a_model",
        _HTTP + "no_error_carries_the_key",
        _HTTP + "a_redirect_is_an_answer_and_the_key_goes_nowhere_else",
        _TAP + "headers_that_carry_keys_are_masked",
        _TAP + "keys_and_passwords_in_addresses_are_masked",
    ),
    "key:no-storm": (
        _THROTTLE + "after_a_refusal_the_line_goes_on_little_by_little",
        _THROTTLE + "pauses_are_stretched_by_chance",
        _FLOW + "after_a_pause_one_goes_first_and_each_answer_lets_two_more_go",
        _FLOW + "refusals_of_what_was_sent_together_are_one_pause_as_long_as_the_longest_of_them",
        _ENDPOINT + "a_rate_limit_holds_all_requests_of_the_key_and_says_so",
    ),
    "key:shared": (
        _THROTTLE + "the_line_is_served_in_order",
        _THROTTLE + "loops_of_several_threads_share_one_line",
        _THROTTLE + "limits_of_an_address_hold_for_all_of_its_keys_also_for_those_in_use",
        _THROTTLE + "whoever_waits_for_more_than_a_moment_is_told_why",
        _ENDPOINT + "no_more_are_under_way_than_are_allowed",
    ),
    "key:what-to-set": (
        _OPENING + "what_is_missing_is_named_with_what_to_set",
        "tests/cli/test_models.py::test_every_provider_is_a_line_that_says_what_to_set",
    ),
    "network:no-hang": (
        _HTTP + "an_answer_that_does_not_begin_is_given_up",
        _HTTP + "an_answer_that_stops_in_the_middle_is_given_up",
        _POOL + "a_silence_ends_the_answer_when_its_time_is_up",
        _ENDPOINT + "pings_alone_do_not_keep_an_answer_alive",
    ),
    "network:bounded": (
        _HTTP + "an_endless_answer_is_left",
        _HTTP + "a_body_that_unpacks_to_more_than_is_taken_is_left",
        _ENDPOINT + "an_event_that_is_too_large_is_not_worth_asking_again",
        _ENDPOINT + "an_endless_refusal_is_read_in_part",
    ),
    "network:let-go": (
        _ENDPOINT + "whoever_stops_listening_closes_the_connection_and_frees_the_slot",
        _HTTP + "cancelling_closes_the_connection_and_leaves_nothing_behind",
        _HTTP + "many_at_once_leave_no_task_and_no_file_open",
        _HTTP + "a_process_that_ends_with_open_connections_ends_quietly",
    ),
    "output:value": (
        _OUTPUT + "types_of_every_kind_are_made",
        _OUTPUT + "a_model_that_never_gets_there_fails_with_its_work_kept",
        _OUTPUT + "an_answer_that_was_cut_off_is_no_output",
        _OUTPUT + "what_a_schema_cannot_say_is_checked_when_the_tool_is_called",
    ),
    "output:repair": (
        _OUTPUT + "an_answer_that_does_not_fit_goes_back_with_every_problem",
        _OUTPUT + "how_often_it_is_told_so_can_be_chosen",
    ),
    "output:partial": (
        _OUTPUT + "the_output_is_seen_while_it_is_written",
        _PARTIAL + "whatever_the_pieces_the_whole_value_is_seen_in_the_end",
        _PARTIAL + "text_that_is_no_json_never_raises",
    ),
    "cache:prefix": (
        _CACHE + "a_run_that_only_adds_has_a_stable_prefix",
        _CACHE + "an_outcome_says_what_spoiled_the_cache",
        _CACHE + "the_first_message_that_differs_is_named",
    ),
    "view:told": (
        _EXTENSION + "the_log_tells_what_of_a_requests_beginning_has_changed_also_in_another_process",
        _EXTENSION + "a_shape_that_rewrites_what_was_sent_is_told_too",
        _EXTENSION + "tools_that_come_while_a_run_goes_on_change_the_view_once",
        _SUMMED_UP + "each_request_begins_with_the_one_before_it_except_where_the_log_says_so",
        _MARATHON + "a_session_of_500_turns_survives_every_kill_and_each_request_begins_with_the_one_before",
    ),
    "view:whole": (
        _COMPACTION + "the_model_is_sent_a_summary_and_the_latest_messages_and_the_log_keeps_everything",
        _COMPACTION + "whoever_opens_the_session_later_sees_the_same",
    ),
    "view:valid": (
        _SHORTENED + "the_view_is_valid_fits_and_can_be_read_back_whatever_happens",
        _SUMMED_UP + "a_run_that_is_longer_than_the_window_gets_to_its_end",
        "tests/context/test_cut_point.py::test_a_cut_keeps_what_is_unanswered_and_never_parts_a_call_from_its_result",
    ),
    "view:harmless": (
        _COMPACTION + "a_model_that_cannot_sum_up_leaves_everything_as_it_was_and_is_asked_again_later",
        _COMPACTION + "a_summary_that_would_not_be_shorter_is_not_used_and_not_tried_every_turn",
        _COMPACTION + "a_cancel_while_it_sums_up_changes_nothing",
        _SUMMED_UP + "a_run_goes_on_when_nobody_can_sum_up",
    ),
    "run:cancel-anywhere": (
        _CANCEL + "a_run_can_be_cancelled_anywhere",
        _CANCEL + "a_run_that_is_kept_in_a_file_can_be_cancelled_anywhere",
    ),
    "run:cancel-is-honest": (
        _STOP + "a_cancel_keeps_finished_results_and_gives_every_other_call_one",
        _CONTENDED + "no_cancel_drops_an_append_that_waits_for_others",
        _CONTENDED + "no_cancel_makes_a_call_that_was_begun_one_that_was_not_started",
        _STOP + "a_call_that_has_begun_is_never_reported_as_not_started",
        _EFFECT + "a_cancelled_call_says_that_nobody_knows",
        _STOP + "a_cancel_while_an_intent_is_stored_says_that_nothing_happened",
    ),
    "run:cancel-modes": (
        _STOP + "after_the_tools_means_after_those_that_run",
        _STOP + "after_the_turn_means_after_all_its_calls",
    ),
    "run:left-behind": (
        _STOP + "a_run_whose_tool_ignores_the_cancel_is_left_behind",
        _STOP + "what_was_left_behind_cannot_write_into_a_later_run",
    ),
    "run:unabortable": (
        _EFFECT + "a_cancel_waits_for_a_tool_that_must_not_be_aborted",
        _STOP + "a_run_is_not_left_behind_while_something_runs_that_must_not_be_aborted",
    ),
    "run:outcome": (
        _RUN + "an_engine_that_raises_fails_the_run_and_is_logged",
        _RUN + "any_other_outcome_unwraps_to_an_error",
    ),
    "run:steering": (
        _LOOP + "steering_comes_after_the_results_of_the_turn",
        _LOOP + "steering_outranks_reasons_to_stop",
    ),
    "run:transcript": (_FOLD + "a_reply_with_calls_enters_the_transcript_together_with_its_results",),
    "run:engines": (
        _RUN_MODEL + "an_engine_of_ones_own_cannot_pass_a_limit",
        _RUN_MODEL + "questions_that_are_asked_at_once_cannot_pass_a_limit_either",
        _RUN_MODEL + "a_question_beside_the_conversation_is_in_the_log_and_not_in_the_conversation",
        _RUN_MODEL + "a_question_that_nobody_hears_to_its_end_is_counted",
        _DIRECT + "permissions_hold_for_the_calls_of_an_engine",
        _DIRECT + "the_limit_of_tool_calls_holds_for_engines",
        _DIRECT + "what_was_done_before_a_crash_is_not_done_again",
        _DIRECT + "a_call_that_a_crash_cut_off_is_unknown_and_not_repeated",
        _ENGINES + "a_model_that_misbehaves_leads_to_an_outcome",
        _ENGINES + "no_engine_passes_the_limit_of_turns",
        "tests/engines/test_resume.py::test_a_run_that_is_resumed_from_anywhere_repeats_no_effect_and_gives_the_same_answer",
        "tests/engines/test_planner_engine.py::test_a_shutdown_in_the_middle_of_a_plan_repeats_no_effect",
        "tests/faults/test_engines.py::test_an_engine_that_is_killed_after_an_append_repeats_no_effect",
    ),
    "run:added-tools": (
        _ADDED + "an_added_tool_is_there_after_a_question",
        _ADDED + "an_added_tool_is_there_in_another_process_after_a_crash",
        _ADDED + "a_tool_that_could_not_be_found_again_is_refused_when_it_is_added",
    ),
    "run:limits": (
        _LIMITS + "a_limit_ends_the_run_and_keeps_the_last_message",
        _LIMITS + "an_answer_that_breaks_the_budget_is_kept",
        _LIMITS + "a_limit_in_money_on_a_model_without_a_price_is_refused_before_the_first_request",
        _LOOP + "steering_stays_where_it_is_when_the_limits_are_exhausted",
        _LOOP + "follow_ups_wait_when_the_limits_are_exhausted",
    ),
    "run:guardrails": (
        _LOOP + "the_same_call_again_and_again_is_nudged_and_then_halted",
        _LOOP + "turns_in_which_everything_fails_are_nudged_and_then_halted",
    ),
    "run:event-order": (
        _EVENTS + "a_run_has_the_order_that_is_drawn",
        _EVENTS + "a_run_that_was_cut_off_has_the_order_that_is_drawn",
    ),
    "permission:final": (
        _PERMIT + "a_question_is_about_the_final_arguments",
        _PERMIT + "decisions_are_stored_before_the_intents_they_allow",
    ),
    "permission:closed": (
        _PERMIT + "a_gate_that_fails_lets_nothing_through",
        _PERMIT + "without_anybody_to_ask_a_tool_that_needs_permission_is_denied",
        _GATE + "nothing_gets_through_that_a_rule_denies_or_nobody_allows",
        _GATE + "an_answer_that_is_missing_or_none_is_a_no",
        _GATE + "when_nobody_can_be_asked_asking_is_denying",
    ),
    "permission:heard": (
        "tests/security/test_callbacks.py::test_a_function_works_plain_and_async_or_is_refused_at_once",
        "tests/core/test_permission_target.py::test_what_no_rule_could_match_is_no_target",
        _LOOP + "a_guardrail_that_says_anything_but_nudge_or_halt_fails_the_run",
    ),
    "permission:one-question": (
        _PERMIT + "one_question_is_asked_for_all_the_calls_of_a_reply",
        _GATE + "one_question_is_asked_for_all_open_calls_and_answers_come_in_the_order_of_the_calls",
    ),
    "permission:scope": (
        _GATE + "a_verdict_is_remembered_as_far_as_its_scope_says",
        _PERMIT + "a_verdict_for_the_session_is_restored_from_its_log",
        _GATE + "grants_can_be_listed_and_taken_back",
    ),
    "permission:targets": (
        _SPELLINGS + "no_spelling_of_another_path_is_allowed",
        _SPELLINGS + "no_spelling_evades_a_denial_of_a_kind_of_file",
        _SPELLINGS + "no_spelling_or_link_evades_a_denial_of_a_folder",
        _SPELLINGS + "no_other_command_is_allowed",
        _SPELLINGS + "no_spelling_evades_a_denial_of_a_command",
        _SPELLINGS + "no_other_address_is_allowed",
        _SPELLINGS + "no_spelling_evades_a_denial_of_an_address",
    ),
    "permission:reads": (
        _DENIED + "no_command_shows_a_file_that_a_rule_denies",
        _DENIED + "tools_leave_out_what_a_rule_denies_or_asks_about",
        _DENIED + "a_file_is_not_shown_by_the_hash_of_its_contents",
        _DENIED + "a_link_in_place_of_a_denied_folder_does_not_show_what_was_committed",
        _DENIED + "a_program_that_is_allowed_by_its_name_may_read_what_it_likes",
    ),
    "permission:secrets": (
        _DENIED + "no_unasked_command_shows_a_file_whose_name_means_secrets",
        _DENIED + "everyday_commands_pass_silently_where_nothing_else_can_be_shown",
    ),
    "permission:bound": (
        _BOUND + "tenants_with_equal_ids_do_not_share_an_approval",
        _NAMESPACED + "an_approval_for_ever_in_the_whole_store_holds_for_that_tenant_alone",
        _NAMESPACED + "a_worker_asks_each_tenant_for_an_approval_for_ever",
        _BOUND + "another_store_does_not_share_an_approval",
        _BOUND + "a_session_that_is_begun_anew_does_not_inherit_approvals",
        _BOUND + "a_fork_asks_again_unless_it_keeps_the_grants",
        _BOUND + "an_approval_for_ever_of_one_folder_does_not_hold_in_another",
        _BOUND + "an_approval_is_for_one_tool_and_not_for_another_of_its_name",
        _BOUND + "an_answer_is_not_applied_to_another_tool_when_the_run_is_resumed",
    ),
    "permission:frozen": (
        _BOUND + "a_gate_cannot_change_what_runs",
        _BOUND + "a_wrapper_cannot_change_what_runs_nor_can_an_earlier_try",
        _BOUND + "a_retry_gets_what_was_approved",
    ),
    "permission:narrows": (
        _BOUND + "an_approval_by_the_childs_own_handler_is_never_one_of_the_parents",
        _BOUND + "a_delegated_agent_cannot_do_what_the_giver_denies",
        _BOUND + "a_handoff_keeps_the_denials_and_questions_of_the_first_agent",
    ),
    "posts:anywhere": (
        _DRIVER + "what_another_process_posts_is_found_by_looking",
        _DRIVER + "a_post_from_another_thread_reaches_the_run",
        _DRIVER + "a_cancel_from_another_process_ends_the_run",
        _QUESTION + "an_answer_in_another_process_lets_the_run_go_on",
        _FILE_MAILBOX + "anybody_can_post_while_a_driver_has_the_log",
    ),
    "posts:once": (
        _DRIVER + "steering_sent_twice_under_one_name_is_told_once",
        _KEEPING + "what_tells_the_model_is_what_takes_the_answer",
        _MAILBOX + "resolved_items_are_told_in_one_message_and_their_entries_take_the_posts",
        _FILE_MAILBOX + "what_was_posted_survives_kill_9",
        "tests/stores/test_postgres_mailbox.py::test_of_many_that_post_the_same_at_once_one_has_posted_it",
    ),
    "posts:late": (
        _DRIVER + "a_cancel_that_came_too_late_is_put_away_by_the_next_run",
        _QUESTION + "an_answer_that_came_too_late_is_put_away",
    ),
    "questions:kept": (
        _QUESTION + "a_run_that_nobody_can_answer_for_ends_as_waiting_and_lists_its_questions",
        _QUESTION + "a_question_that_a_crash_left_open_is_asked_again_under_the_same_id",
        _QUESTION + "an_answer_that_was_stored_before_a_crash_is_not_asked_for_again",
        _QUESTION + "a_question_stays_open_under_its_id_however_often_the_run_is_resumed",
    ),
    "questions:once": (
        _QUESTION + "a_question_is_answered_once",
        _QUESTION + "the_first_answer_counts_whether_it_comes_by_post_or_from_the_handler",
    ),
    "questions:honest": (
        _ANSWERABLE + "a_question_whose_call_died_with_its_process_is_neither_shown_nor_answered",
        _ANSWERABLE + "the_answer_to_a_call_that_is_made_again_is_used",
        _ANSWERABLE + "an_answer_that_comes_just_after_the_end_of_the_run_is_not_accepted",
    ),
    "questions:silence": (
        _QUESTION + "a_question_expires_as_a_no",
        _QUESTION + "a_question_expires_while_somebody_is_being_asked",
        _QUESTION + "an_answer_that_was_garbled_on_its_way_is_a_no",
    ),
    "questions:settled": (_QUESTION + "a_person_settles_a_call_that_asks_for_it",),
    "questions:asks-first": (
        _SLOT + "a_tool_that_asks_first_is_put_aside_and_gets_its_answers_in_order",
        _ASKED + "a_tool_that_asks_first_survives_kills_of_whoever_asks_and_whoever_answers",
    ),
    "inbox:once": (
        _KEEPING + "an_item_is_pending_then_resolved_then_consumed",
        _KEEPING + "an_item_is_answered_once_also_by_several_processes",
    ),
    "inbox:subagents": (
        "tests/runtime/subagents/test_subagent_inbox.py::test_a_subagent_at_work_is_told_itself",
        "tests/runtime/subagents/test_subagent_inbox.py::test_a_subagent_that_a_crash_cut_off_is_told_when_it_goes_on",
        "tests/runtime/subagents/test_subagent_inbox.py::test_wherever_a_process_dies_the_result_is_told_once",
    ),
    "inbox:wakes": (
        _KEEPING + "an_answer_wakes_the_session",
        _KEEPING + "whoever_attends_a_session_sees_it_go_on_by_itself",
    ),
    "subagents:crash": (
        _FAMILIES + "agents_that_work_for_agents_survive_kills",
        _ATTACHED + "a_run_that_was_cut_off_anywhere_goes_on_and_does_nothing_twice",
    ),
    "subagents:transcripts": (
        _ATTACHED + "all_transcripts_are_valid_at_any_cut_of_the_log",
        _ATTACHED + "a_new_prompt_after_a_crash_closes_the_children_too",
    ),
    "subagents:background": (
        _DELEGATION + "a_background_task_outlives_the_run_and_its_end_wakes_the_session",
        _DELEGATION + "what_a_crash_cut_off_is_taken_up_and_told_once",
        _DELEGATION + "whoever_waits_for_agents_is_told_once",
        _DELEGATION + "a_task_that_had_not_begun_when_its_process_ended_is_taken_up_by_a_worker",
        _DELEGATION + "a_task_whose_process_died_before_its_log_began_is_taken_up_by_a_worker",
        _DELEGATION + "a_task_that_ended_as_its_process_died_is_reported_by_a_worker",
        _FAMILIES + "agents_that_work_for_agents_survive_kills",
    ),
    "subagents:questions": (
        _ATTACHED + "questions_of_a_child_are_asked_on_the_session_and_answered_days_later",
        _ATTACHED + "an_answer_reaches_a_child_that_is_waiting_for_it_here",
    ),
    "subagents:limits": (
        _ATTACHED + "what_a_child_uses_and_costs_counts_for_its_parents",
        _ATTACHED + "a_token_budget_of_the_parent_ends_a_child",
        _ATTACHED + "a_limit_in_money_holds_for_children_and_needs_their_price",
        _ATTACHED + "the_ledger_of_the_parent_is_the_childs_too",
    ),
    "subagents:cancel": (
        _ATTACHED + "a_child_is_cancelled_with_its_parent",
        _ATTACHED + "a_run_that_is_cancelled_while_its_child_waits_ends_the_child_too",
        _ATTACHED + "a_cancel_while_a_child_is_being_begun_leaves_nothing_open",
    ),
    "secrets:nowhere": (
        _PLANTED + "no_sink_has_any_of_fifty_secrets_in_any_form",
        _PLANTED + "an_agent_with_a_vault_shows_and_keeps_none_of_them",
        _PLANTED + "every_sink_has_them_when_nothing_is_scrubbed",
        _SLOT + "secrets_that_a_tool_was_given_are_not_shown",
        _SCATTERED + "a_value_is_hidden_in_every_encoding",
        _REDACTION + "names_and_ids_that_others_choose_have_no_secret_in_the_log",
    ),
    "files:broken-skill": (
        _SKILL + "a_skill_that_cannot_be_used_is_left_out_with_one_message",
        _SKILL + "a_skill_that_can_be_mended_is_used_with_one_message",
        _SKILL + "any_file_is_either_a_skill_or_refused",
    ),
    "files:broken-configuration": (
        _CONFIG + "a_broken_file_is_refused_with_its_line",
        _CONFIG + "a_broken_file_of_servers_is_refused_with_its_line",
        _CONFIG + "everything_that_is_wrong_is_told_at_once",
        _CONFIG + "no_bytes_cause_any_other_error",
        _CONFIG + "a_file_that_is_cut_off_or_changed_at_any_byte_causes_no_other_error",
    ),
    "files:bounded": (
        _SKILL + "what_is_no_small_file_is_left_out_unread",
        _SKILL + "what_lies_beside_a_projects_skill_cannot_keep_the_loader",
        _FRONT_MATTER + "a_file_that_is_made_to_cost_much_is_left_after_its_first_steps",
        _CONFIG + "what_is_no_file_of_text_is_refused_without_waiting",
    ),
    "files:trust": (
        _TRUST + "a_skill_of_a_project_is_inert_until_somebody_agrees_to_it",
        _TRUST + "any_change_of_content_asks_again",
        _TRUST + "what_was_trusted_is_read_as_it_was_or_not_at_all",
    ),
    "watchers:harmless": (
        _WATCH + "an_async_watcher_that_blocks_the_event_loop_rests_after_each_call",
        _WATCH + "a_watcher_that_blocks_delays_a_run_by_few_calls_and_the_wait_at_its_end",
        _WATCH + "a_watcher_that_raises_is_reported_and_the_others_go_on",
        _WATCH + "a_plain_watcher_that_never_returns_is_left_behind",
        _WATCH + "an_async_watcher_that_hangs_is_cancelled",
    ),
    "watchers:told": (
        _WATCH + "a_watcher_that_blocks_loses_the_oldest_events_and_is_told",
        _WATCH + "anything_else_stays_apart_and_the_reader_is_told_that_one_was_lost",
    ),
    "watchers:backpressure": (_WATCH + "backpressure_loses_nothing_and_holds_little_even_with_many_publishers",),
    "log:acknowledged-survives": (
        _FAULTS + "whatever_was_acknowledged_survives_kill_9",
        _FILE_FAULTS + "whatever_was_acknowledged_survives_kill_9",
        "tests/stores/test_postgres_faults.py::test_whatever_was_acknowledged_survives_kill_9",
    ),
    "log:barriers": (
        _FAULTS + "a_barrier_is_synced_with_all_before_it_and_a_plain_append_is_not",
        _WAL_SYNC + "while_the_disk_is_quick_a_barrier_is_synced_by_its_caller",
        _FILE_FAULTS + "a_barrier_is_synced_and_a_plain_append_is_not",
        _POSTGRES + "only_barriers_wait_for_the_disk",
    ),
    "log:power": (
        _POWER + "what_was_acknowledged_survives_a_power_cut_at_any_moment",
        _POWER + "a_conversation_goes_on_after_power_cuts_and_no_effect_happens_twice",
        _POWER + "sessions_in_files_survive_power_cuts_too",
    ),
    "log:disk-errors": (
        _DISK + "whichever_operation_fails_once_the_same_store_goes_on",
        _DISK + "whichever_operation_fails_for_good_a_new_store_goes_on_later",
        _FAULTS + "after_a_sync_that_failed_everything_is_written_and_checked_again",
        _WAL_SYNC + "a_sync_that_fails_at_its_caller_acknowledges_nothing",
        _FILE_FAULTS + "a_sync_that_failed_is_never_believed_again",
    ),
    "log:one-queue": (
        _CHANNEL + "runs_of_a_session_wait_for_their_turn_whoever_asks_for_it",
        _CHANNEL + "a_session_that_is_reached_in_another_way_is_the_same_one",
        _CHANNEL + "two_sessions_whose_tools_run_each_other_get_an_error_and_no_deadlock",
    ),
    "log:fenced": (
        _LATE + "a_stopped_driver_that_was_taken_over_begins_no_other_effect",
        _LATE + "a_driver_that_was_stopped_for_longer_than_its_lease_begins_no_other_effect",
        _LATE + "what_a_person_has_made_again_is_not_made_by_the_driver_that_was_stopped",
        _FENCE + "calls_of_the_same_reply_are_not_begun_when_the_driver_was_replaced_in_the_first",
        _FENCE + "a_tool_gets_the_fence_which_grows_when_the_session_is_taken_over",
        "tests/faults/test_takeover.py::test_a_driver_that_was_paused_and_replaced_is_fenced",
        _DRIVER + "a_session_that_is_driven_elsewhere_can_be_taken_over_and_its_driver_is_stopped",
    ),
    "log:races": (
        _RACES + "of_several_processes_that_want_a_session_one_gets_it",
        _RACES + "of_several_processes_that_take_a_session_over_one_is_left",
    ),
    "log:same-everywhere": (
        _MACHINE + "the_store_in_memory_does_what_the_model_does",
        _MACHINE + "the_store_of_files_does_what_the_model_does",
        _MACHINE + "the_store_in_an_sqlite_file_does_what_the_model_does",
        _MACHINE + "the_store_in_a_postgres_database_does_what_the_model_does",
    ),
    "log:damage": (
        _FILE_DAMAGE + "a_file_cut_off_anywhere_is_repaired_and_goes_on",
        _FILE_DAMAGE + "a_flipped_byte_costs_at_most_the_append_it_is_in_and_is_found",
        _FILE_DAMAGE + "a_repair_that_fails_anywhere_loses_nothing",
    ),
    "log:bit-flips": (
        "tests/faults/test_bit_flips.py::test_a_flipped_bit_is_told_or_changes_nothing_and_no_effect_is_repeated",
        _FILE_DAMAGE + "a_run_that_has_lost_an_entry_is_not_gone_on_with_and_says_so",
        _FILE_DAMAGE + "an_input_that_may_have_had_its_run_is_not_run_again",
        "tests/stores/test_sqlite_page_checksums.py::test_every_page_has_a_checksum",
    ),
    "log:older-versions": (
        "tests/logs/test_museum.py::test_an_old_session_goes_on",
        "tests/logs/test_museum.py::test_a_run_that_was_cut_off_long_ago_can_be_resumed",
        "tests/stores/test_sqlite_schema.py::test_a_file_of_format_1_is_brought_up_to_date",
        "tests/stores/test_sqlite_schema.py::test_a_file_that_could_not_be_brought_up_is_as_it_was",
        "tests/stores/test_postgres_schema.py::test_tables_of_the_first_format_are_brought_up_to_date",
    ),
    "log:all-or-nothing": (
        _FAULTS + "an_append_that_fails_before_the_commit_leaves_nothing",
        _FAULTS + "an_append_that_fails_after_the_commit_can_be_repeated",
        _SQLITE + "it_keeps_the_contract",
        _POSTGRES + "it_keeps_the_contract",
        "tests/stores/test_file.py::test_it_keeps_the_contract",
        "tests/stores/test_memory.py::test_it_keeps_the_contract",
    ),
    "log:one-driver": (
        _SQLITE + "of_several_processes_one_gets_each_session",
        _SQLITE + "a_driver_that_was_replaced_cannot_give_the_new_lease_back",
    ),
    "log:takeover": (
        _SQLITE + "a_session_whose_holder_is_gone_is_taken_over",
        "tests/stores/test_process_lock.py::test_a_driver_in_another_container_keeps_its_session",
        "tests/stores/test_process_lock.py::test_on_windows_a_second_process_does_not_take_the_session_of_a_living_one",
        "tests/stores/test_lease_holder_process.py::test_a_process_is_dead_when_it_has_ended_though_nobody_has_noticed",
        _POSTGRES + "the_session_of_a_killed_driver_is_free_when_its_lease_has_ended",
    ),
    "log:any-content": (
        _CODEC + "no_content_can_make_writing_or_reading_fail",
        _CODEC + "every_event_is_read_back_as_it_was",
        _LARGE + "a_huge_prompt_result_and_reply_are_kept_in_files",
        _LARGE + "a_huge_result_is_kept_in_sqlite",
        _LARGE + "a_huge_result_is_kept_in_postgres",
        _LONG + "a_result_that_is_too_long_is_an_error_that_says_what_happened_and_the_run_goes_on",
        _LONG + "a_reply_that_is_too_long_is_cut_as_if_the_model_had_reached_its_limit",
        _LONG + "a_prompt_that_is_too_long_is_refused_and_nothing_is_stored",
    ),
    "log:unknown-kinds": (
        _CODEC + "an_unknown_kind_is_kept_as_it_came",
        _CODEC + "an_unknown_critical_kind_stops_the_reader_with_advice",
        _SQLITE + "kinds_of_a_newer_version_are_kept_unless_they_are_critical",
    ),
    "log:full-disk": (
        _FAULTS + "on_a_full_disk_what_was_acknowledged_stays",
        _FAULTS + "a_full_database_takes_nothing_and_goes_on_when_there_is_room",
        _FILE_FAULTS + "on_a_full_disk_what_was_acknowledged_stays",
        "tests/faults/test_full_disk.py::test_a_session_on_a_full_disk_stops_and_goes_on_when_there_is_room",
    ),
    "log:foreign-files": (
        _FILE + "the_database_of_another_program_is_left_as_it_is",
        _FILE + "a_file_that_is_no_database_is_left_as_it_is",
        _FILE + "a_file_of_a_newer_format_is_refused",
    ),
    "crash:anywhere": (
        _KILL + "after_a_kill_at_a_fault_point_another_process_goes_on",
        _KILL + "after_several_kills_another_process_goes_on",
        _KILL + "after_kills_at_any_time_another_process_goes_on",
    ),
    "crash:together": (
        _OUTSIDE + "no_signal_at_any_time_breaks_a_promise",
        _OUTSIDE + "no_cancel_among_others_loses_what_has_happened",
    ),
    "crash:interrupts": (
        "tests/faults/test_interrupts.py::test_what_was_acknowledged_survives_signals_whose_handlers_raise",
        (
            "tests/stores/test_sqlite_leftover_transaction.py::"
            "test_a_transaction_that_somebody_left_open_is_rolled_back_before_anything_is_acknowledged"
        ),
    ),
    "crash:resume": (
        _KILL + "run_tool_kill_resume",
        _RESUME + "a_call_that_only_reads_is_made_again",
    ),
    "crash:no-second-effect": (
        _RESUME + "a_call_that_may_have_happened_is_unknown_and_the_run_goes_on",
        _FOLD + "started_calls_become_unknown_and_others_say_that_they_never_began",
    ),
    "crash:next-prompt": (
        _FOLD + "a_run_that_was_cut_off_is_closed_with_what_it_used",
        _EVENTS + "a_run_that_was_cut_off_has_the_order_that_is_drawn",
    ),
    "crash:schedules": (
        _SCHEDULED + "two_processes_that_serve_the_same_schedule_fire_each_due_time_once",
        _SCHEDULED + "a_process_that_is_killed_leaves_its_firing_to_another_and_no_effect_happens_twice",
        "tests/scheduling/test_scheduler.py::test_a_trigger_is_fired_once_also_if_it_is_sent_again_afterwards",
    ),
    "crash:workers": (
        "tests/faults/test_workers.py::test_workers_that_are_killed_at_random_leave_their_sessions_to_others",
        "tests/runtime/test_resume_worker.py::test_every_session_that_was_cut_off_is_finished",
    ),
    "crash:unparked": (
        _DRIVER + "a_parked_run_can_be_taken_up_again",
        _DRIVER + "the_input_of_a_parked_run_gets_the_outcome_of_the_run_that_was_taken_up",
    ),
    "crash:parked": (
        _DRIVER + "a_run_that_was_taken_up_three_times_without_progress_is_parked",
        _DRIVER + "progress_starts_the_count_of_recoveries_anew",
    ),
    "crash:one-submission": (
        _DRIVER + "a_prompt_sent_twice_under_one_name_is_answered_once",
        _DRIVER + "the_same_prompt_sent_while_it_is_being_answered_waits_for_that_answer",
        _DRIVER + "a_prompt_that_a_crash_cut_off_goes_on_when_it_is_sent_again",
    ),
    "crash:always": (_DRIVER + "a_run_can_be_thrown_away_after_every_append_and_goes_on_from_the_log",),
    "crash:long": (
        _MARATHON + "a_session_of_500_turns_survives_every_kill_and_each_request_begins_with_the_one_before",
    ),
    "crash:housekeeping": (
        _KILL + "no_kill_leaves_a_fork_a_redaction_a_deletion_or_a_post_half_done",
        _LINEAGE + "whoever_is_killed_while_redacting_forking_or_deleting_leaves_all_in_order",
    ),
    "crash:shutdown": (
        _SHUTDOWN + "tools_that_run_come_to_their_ends_and_what_has_not_begun_is_left_to_the_next_process",
        _SHUTDOWN + "a_tool_that_takes_too_long_is_cancelled",
        _SHUTDOWN + "the_session_can_be_gone_on_with",
        _SHUTDOWN + "a_call_that_may_be_repeated_is_made_again_by_the_next_process_with_the_same_key",
        _SHUTDOWN + "background_agents_of_a_wrapped_agent_ask_no_model_any_more",
        _SHUTDOWN + "a_worker_takes_up_nothing_any_more_and_ends",
        _SHUTDOWN + "no_command_begins_once_the_process_was_asked_to_end",
        _SHUTDOWN + "a_prompt_for_another_session_is_refused_and_nothing_of_it_is_stored",
        "tests/cli/test_sigterm.py::test_nothing_is_lost_by_a_sigterm_at_any_moment",
    ),
    "crash:harness": (
        _KILL + "a_bug_is_found",
        _KILL + "a_deletion_that_did_not_happen_is_found",
        _POWER + "barriers_that_are_not_synced_are_found",
        _POWER + "commits_that_are_not_followed_by_their_sync_are_found",
        _POWER + "a_disk_that_lies_about_syncs_is_found",
        _MACHINE + "the_search_finds_what_is_wrong",
        _OUTSIDE + "a_bug_is_found_from_outside",
    ),
    "keeping:forks": (
        _KEEPING + "a_fork_goes_its_own_way_from_any_point",
        _KEEPING + "a_fork_inside_a_run_can_be_gone_on_with",
        _TREE + "a_hundred_forks_take_next_to_nothing",
        _TREE + "what_forks_share_is_freed_with_the_last_of_them",
    ),
    "keeping:no-byte": (
        (
            "tests/faults/test_erasure.py::"
            "test_sessions_that_were_deleted_and_entries_that_were_redacted_are_in_no_file_any_more"
        ),
        "tests/faults/test_erasure.py::test_memories_that_were_forgotten_are_in_no_file_any_more",
        _TREE + "a_redacted_entry_leaves_no_byte",
        _TREE + "a_deleted_session_leaves_no_byte",
        _SEARCH + "a_deleted_session_leaves_nothing_in_the_index",
        _SEARCH + "a_session_that_is_larger_than_all_others_leaves_nothing_in_the_index",
        _SEARCH + "no_word_of_a_removed_text_is_left_whatever_came_before",
        "tests/stores/test_file_erase.py::test_a_deleted_session_leaves_no_byte",
        "tests/core/test_event_erasure.py::test_nothing_that_was_said_is_left",
        "tests/stores/test_postgres_erasure.py::test_a_deleted_session_leaves_no_row_with_its_text",
    ),
    "keeping:search": (
        _SEARCH + "what_tools_say_is_found_too",
        _SEARCH + "plain_words_are_data_whatever_is_in_them",
        _SEARCH + "a_redacted_entry_is_found_by_what_stands_there_now",
        "tests/stores/test_sqlite_search_processes.py::test_processes_that_share_an_index_find_what_each_of_them_says",
        "tests/stores/test_postgres_search.py::test_words_are_found_whatever_stands_around_them",
    ),
    "keeping:index": (
        _DAMAGE + "a_damaged_index_is_made_anew",
        _DAMAGE + "an_older_log_in_the_place_of_a_newer_one_is_noticed",
        "tests/stores/test_sqlite_search_thread.py::test_appending_goes_on_while_the_index_is_locked",
    ),
    "keeping:backup": (
        _UPKEEP + "a_backup_becomes_a_store_again_and_replaces_none",
        _SQLITE_UPKEEP + "a_backup_can_be_made_while_the_store_is_in_use_and_opened_where_it_lies",
        "tests/stores/test_file_upkeep.py::test_a_backup_can_be_opened_and_driven",
        _FLIPS + "a_backup_with_a_flipped_bit_is_refused_and_nothing_is_created",
    ),
    "keeping:prune": (
        _UPKEEP + "the_oldest_go_first_and_no_more_than_need_be",
        _UPKEEP + "a_session_that_is_driven_stays_and_the_next_one_goes",
        _UPKEEP + "a_session_that_waits_for_an_answer_stays_unless_it_is_asked_for",
    ),
    "keeping:apart": (
        "tests/stores/test_namespace.py::test_two_parts_know_nothing_of_each_other",
        _POSTGRES + "tenants_do_not_see_one_another",
    ),
    "keeping:replay": (
        _REPLAY + "a_session_is_replayed_without_asking_a_model_or_calling_a_tool",
        _REPLAY + "a_log_that_breaks_off_anywhere_agrees_and_so_does_what_is_resumed_or_begun_after_it",
        _REPLAY + "other_instructions_are_a_divergence_at_the_first_request",
    ),
    "keeping:moved": (
        _TRANSFER + "a_session_survives_the_way_through_a_document",
        _TRANSFER + "a_session_of_that_name_is_left_as_it_is",
    ),
    "workspace:inside": (
        _LINKS + "a_folder_that_is_exchanged_for_a_link_leaks_nothing_that_is_read",
        _LINKS + "a_file_that_is_exchanged_for_a_link_leaks_nothing_that_is_read",
        _LINKS + "a_folder_that_is_exchanged_for_a_link_is_neither_listed_nor_searched",
        _LINKS + "nothing_outside_is_written_whatever_is_exchanged_meanwhile",
    ),
    "workspace:fresh": (
        "tests/toolkits/test_edit_tool.py::test_a_file_that_was_not_read_or_has_changed_since_is_not_edited",
        "tests/toolkits/test_file_tools.py::test_what_was_read_is_what_is_replaced",
        "tests/toolkits/test_file_tools.py::test_what_a_session_has_read_is_known_after_a_restart",
    ),
    "workspace:once": ("tests/faults/test_file_crash.py::test_a_run_that_was_killed_at_a_write_goes_on_and_is_undone",),
    "workspace:session": (
        _CODING + "a_session_that_was_killed_goes_on_with_each_effect_at_most_once",
        _CODING + "killed_anywhere_it_goes_on",
        _CODING + "killed_while_a_command_runs_in_the_sandbox_it_goes_on_without_the_command",
        _CODING + "on_the_command_line_it_is_resumed_and_undone_too",
    ),
    "workspace:undo": (
        "tests/test_file_history.py::test_runs_are_undone_one_after_another_and_redone_in_reverse",
        "tests/test_file_history.py::test_what_others_have_changed_since_stays_unless_it_is_to_be_overwritten",
    ),
    "budget:holds": (
        _LEDGER + "many_runs_at_once_never_spend_more_than_they_share",
        _LEDGER + "spent_and_set_aside_never_exceed_the_ceiling",
    ),
    "budget:crash": (
        "tests/core/test_loop_limits.py::test_requests_that_crashes_left_without_a_reply_count_as_used",
        "tests/core/test_loop_limits.py::test_a_run_whose_requests_crash_reaches_its_limit",
        "tests/core/test_loop_limits.py::test_a_budget_of_a_new_process_counts_what_the_run_had_used",
    ),
    "budget:last-turn": (
        _LEDGER + "near_the_end_the_model_concludes_without_tools",
        _LEDGER + "the_last_answer_is_as_long_as_can_still_be_paid_for",
    ),
}
"""The tests that keep a promise, by their node ids."""

_LIST = re.compile(r"(<!-- promises: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def rendered(page: str) -> str:
    """The page with its lists as they should be."""
    return _LIST.sub(lambda match: f"{match[1]}\n{listed(match[2])}\n{match[3]}", page)


def areas(page: str) -> set[str]:
    """The areas whose promises a page lists."""
    return {match[2] for match in _LIST.finditer(page)}


def listed(area: str) -> str:
    """The promises of an area, each with its tests."""
    promises = [name for name in PROMISES if name.partition(":")[0] == area]
    return "".join([f"- **{PROMISES[name]}**\n{_tests(name)}" for name in promises])


def _tests(name: str) -> str:
    lines = []
    for node in KEPT_BY.get(name, ()):
        place, _, function = node.partition("::")
        lines.append(f"  - [{function.removeprefix('test_').replace('_', ' ')}](../{place})\n")
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
