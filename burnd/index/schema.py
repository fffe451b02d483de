"""The tables of the index. An index of another layout is rebuilt from the ledger; no table is ever altered."""

from __future__ import annotations


def _id_in(column: str) -> str:
    """The SQL for the text of an id that is stored in the form of `short_id`."""
    digits = f"hex({column})"
    parts = "||'-'||".join(f"substr({digits}, {begin}, {length})" for begin, length in _UUID_PARTS)
    return f"CASE typeof({column}) WHEN 'blob' THEN lower({parts}) ELSE {column} END"


_UUID_PARTS = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))

_TRUTH = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Texts of many rows (models, projects, tools, targets) are stored once.
CREATE TABLE names(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

CREATE TABLE sessions(
  id INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE,
  source INTEGER,
  parent_session_id TEXT,
  project INTEGER,
  project_key INTEGER,
  project_by TEXT,        -- origin of the project: '' a record of the session, else the smallest rail with one
  agent TEXT,
  created_by TEXT,
  created_at INTEGER,
  updated_at INTEGER,
  said_count INTEGER NOT NULL DEFAULT 0,      -- messages according to a session record
  pruned_count INTEGER NOT NULL DEFAULT 0,    -- messages whose content was deleted
  kept_count INTEGER NOT NULL DEFAULT 0,      -- messages whose content is in the sidecar
  content_mode TEXT,
  content_since INTEGER,  -- when that mode began to apply
  title TEXT,             -- set by a client; wins over that of the harness
  summary TEXT,
  harness_title TEXT,     -- deleted with the content
  title_rank INTEGER NOT NULL DEFAULT -1,     -- the kind of that title; a better kind wins
  harness_summary TEXT,
  summary_key TEXT NOT NULL DEFAULT '',       -- of several summaries the one with the greatest key
  content_bytes INTEGER NOT NULL DEFAULT 0,   -- bytes of the sidecar that these rows cover
  pruned_up_to INTEGER,
  erasures INTEGER NOT NULL DEFAULT 0         -- number of erasures in the sidecar
);
CREATE INDEX sessions_by_update ON sessions(coalesce(updated_at, 0), session_id);
CREATE INDEX sessions_by_parent ON sessions(parent_session_id) WHERE parent_session_id IS NOT NULL;

CREATE TABLE turns(
  id INTEGER PRIMARY KEY,
  source INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  session INTEGER NOT NULL,
  rail TEXT NOT NULL,
  turn_index INTEGER NOT NULL,
  parent TEXT,
  ts INTEGER NOT NULL,
  model INTEGER NOT NULL,
  provider INTEGER,
  project INTEGER,
  project_key INTEGER,
  branch INTEGER,
  input INTEGER NOT NULL,
  output INTEGER NOT NULL,
  reasoning INTEGER NOT NULL,
  cache_read INTEGER NOT NULL,
  cache_create_5m INTEGER NOT NULL,
  cache_create_1h INTEGER NOT NULL,
  speed INTEGER,
  searches INTEGER NOT NULL,
  fetches INTEGER NOT NULL,
  quality TEXT NOT NULL,
  activity INTEGER,
  stop_reason INTEGER,
  has_edits INTEGER,
  retries INTEGER,
  prompt BLOB,
  prompt_id TEXT AS ({_id_in("prompt")}),
  prompt_retries INTEGER,
  agent_id TEXT,
  agent_type INTEGER,
  parent_call TEXT,
  stated_usd REAL,            -- its cost as the harness states it
  version INTEGER,            -- of the harness
  pull INTEGER,               -- address of a pull request that was made or named in it
  request_id TEXT,
  open INTEGER NOT NULL,      -- may still grow; not in the ledger in this form yet
  rev INTEGER NOT NULL,       -- the newest in the ledger; 0: none yet
  digest INTEGER NOT NULL,
  position INTEGER,           -- of that revision's line
  length INTEGER,
  class INTEGER NOT NULL DEFAULT 0,
  place INTEGER NOT NULL DEFAULT 0,
  subagent INTEGER NOT NULL DEFAULT 0,
  seq INTEGER NOT NULL DEFAULT 0,     -- of its last change, see `index.changes`
  UNIQUE(source, message_id)
);
CREATE INDEX turns_by_time ON turns(ts);
CREATE INDEX turns_by_session ON turns(session, rail, turn_index);
CREATE INDEX turns_by_session_time ON turns(session, ts);
CREATE INDEX turns_by_pull ON turns(pull) WHERE pull IS NOT NULL;
CREATE INDEX turns_of_subagents ON turns(session, agent_id, parent_call) WHERE subagent <> 0;
CREATE INDEX turns_by_prompt ON turns(session, prompt_id, prompt_retries, ts, turn_index) WHERE has_edits;
CREATE INDEX turns_with_stated_cost ON turns(model) WHERE stated_usd IS NOT NULL;

CREATE TABLE tool_calls(
  turn INTEGER NOT NULL,
  n INTEGER NOT NULL,
  call_id TEXT NOT NULL,
  name INTEGER NOT NULL,
  target INTEGER,
  is_error INTEGER,
  PRIMARY KEY(turn, n)
) WITHOUT ROWID;

-- The newest record of each identity, other than turns; the record itself is in the ledger.
CREATE TABLE facts(
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  session INTEGER,
  rail TEXT,
  ts INTEGER,
  digest INTEGER NOT NULL,
  position INTEGER NOT NULL,
  length INTEGER NOT NULL,
  name INTEGER,               -- of an event
  forked INTEGER,             -- of a copy: according to its log
  turn_index INTEGER,         -- of a copy
  UNIQUE(kind, key)
);
CREATE INDEX facts_by_session ON facts(session, kind);

CREATE TABLE stamps(
  position INTEGER PRIMARY KEY,
  ts INTEGER NOT NULL,
  session_id TEXT,
  message_id TEXT,
  from_ts INTEGER,
  to_ts INTEGER,
  enrichment TEXT NOT NULL    -- null for a key that is removed
);
CREATE INDEX stamps_by_session ON stamps(session_id) WHERE session_id IS NOT NULL;
CREATE INDEX stamps_by_message ON stamps(message_id) WHERE message_id IS NOT NULL;

CREATE TABLE quotas(
  position INTEGER PRIMARY KEY, ts INTEGER NOT NULL, source INTEGER NOT NULL, window TEXT NOT NULL,
  used_percent REAL NOT NULL, resets_at INTEGER);
CREATE INDEX quotas_by_reset ON quotas(source, window, resets_at, ts);
CREATE INDEX quotas_by_time ON quotas(window, ts);

-- One row for each block of content, in the order of the conversation; the text itself stays in the sidecar.
CREATE TABLE messages(
  session INTEGER NOT NULL,
  rail TEXT NOT NULL,
  msg_idx INTEGER NOT NULL,   -- counts messages along the rail
  n INTEGER NOT NULL,
  b INTEGER NOT NULL,
  message BLOB NOT NULL,      -- its id; 16 bytes if it is a UUID
  message_id TEXT AS ({_id_in("message")}),
  ts INTEGER NOT NULL,
  said INTEGER NOT NULL,      -- role and kind in one number: two texts would take a fifth of a row
  role TEXT AS (CASE said / 8 WHEN 0 THEN 'user' WHEN 1 THEN 'assistant' WHEN 2 THEN 'tool_result' ELSE 'system' END),
  kind TEXT AS (CASE said % 8 WHEN 0 THEN 'text' WHEN 1 THEN 'thinking' WHEN 2 THEN 'tool_use' WHEN 3 THEN 'tool_result'
    WHEN 4 THEN 'file' WHEN 5 THEN 'title' WHEN 6 THEN 'summary' ELSE 'system_prompt' END),
  tool INTEGER,
  position INTEGER NOT NULL,
  length INTEGER NOT NULL,
  PRIMARY KEY(session, rail, msg_idx, n, b)
) WITHOUT ROWID;
-- Ids are long with random endings, so their last characters are a short and selective key. The session is first: a
-- batch then changes few pages, whatever the number of sessions.
CREATE INDEX messages_by_message ON messages(session, substr(message_id, -5));

-- Messages whose text must not be stored in any session, by hash of their ids; `by_mode`: due to their session's mode.
CREATE TABLE withheld(
  id INTEGER NOT NULL, session INTEGER NOT NULL, by_mode INTEGER NOT NULL, PRIMARY KEY(id, session)) WITHOUT ROWID;
-- The sessions that a session was forked, branched or cleared from; `repeats`: it repeats withheld messages of it.
CREATE TABLE origins(
  session INTEGER NOT NULL, origin TEXT NOT NULL, repeats INTEGER NOT NULL,
  PRIMARY KEY(session, origin)) WITHOUT ROWID;
CREATE INDEX origins_by_origin ON origins(origin);

CREATE TABLE skipped(
  position INTEGER PRIMARY KEY, length INTEGER NOT NULL, reason TEXT NOT NULL, kind TEXT NOT NULL);

-- Cursor of each file, and the state of its reader.
CREATE TABLE files(
  id INTEGER PRIMARY KEY, source TEXT NOT NULL, path TEXT NOT NULL, root TEXT, cursor BLOB, state BLOB, seen INTEGER,
  open INTEGER NOT NULL DEFAULT 0,    -- has a message that may still grow
  UNIQUE(source, path));
CREATE INDEX files_open ON files(source) WHERE open;

-- Turns that may still grow: the whole record, since the ledger does not have it yet.
CREATE TABLE open_turns(turn INTEGER PRIMARY KEY, file INTEGER NOT NULL, record BLOB NOT NULL);

-- The calls that started agents, as files name them, with the earliest time.
CREATE TABLE agents(
  session_id TEXT NOT NULL, agent_id TEXT NOT NULL, evidence INTEGER NOT NULL, tool_use_id TEXT NOT NULL,
  ts TEXT NOT NULL, type TEXT, group_id TEXT,
  PRIMARY KEY(session_id, agent_id, evidence, tool_use_id)) WITHOUT ROWID;
CREATE INDEX agents_by_group ON agents(session_id, group_id) WHERE group_id IS NOT NULL;

CREATE TABLE cursors(
  source TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY(source, key)) WITHOUT ROWID;
"""

_MEASURES = """
  n INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL,
  cache_read INTEGER NOT NULL, cache_create_5m INTEGER NOT NULL, cache_create_1h INTEGER NOT NULL,
  searches INTEGER NOT NULL, partials INTEGER NOT NULL, empties INTEGER NOT NULL, edits INTEGER NOT NULL,
  one_shots INTEGER NOT NULL, prompts INTEGER NOT NULL, one_shot_prompts INTEGER NOT NULL"""

_SUMS = f"""
-- Dimensions of turns, by number; 0 means none.
CREATE TABLE classes(
  id INTEGER PRIMARY KEY,
  source INTEGER NOT NULL,
  model INTEGER NOT NULL,
  provider INTEGER NOT NULL,
  terms INTEGER NOT NULL,     -- the billing terms, as `pricing.cost` writes them
  tier INTEGER NOT NULL,      -- the largest context size below the turn's own at which its price may change
  open INTEGER NOT NULL,
  unlogged INTEGER NOT NULL,  -- usage beyond the logged turns, according to the harness
  UNIQUE(source, model, provider, terms, tier, open, unlogged)
);
-- The context sizes by which turns of a model are classified.
CREATE TABLE tiers(
  model INTEGER NOT NULL, provider INTEGER NOT NULL, sizes TEXT NOT NULL,
  listed INTEGER NOT NULL,    -- whether a list has a price: if not, the terms have the harness's figure
  PRIMARY KEY(model, provider)) WITHOUT ROWID;
CREATE TABLE places(
  id INTEGER PRIMARY KEY, project INTEGER NOT NULL, project_key INTEGER NOT NULL, UNIQUE(project, project_key));
-- Agents: a subagent by its id and type, a named agent of a main rail by its name alone (agent_id '').
CREATE TABLE subagents(
  id INTEGER PRIMARY KEY, agent_id TEXT NOT NULL, type INTEGER NOT NULL, UNIQUE(agent_id, type));

-- The sums of turns, by session and quarter of an hour. -1 is the activity of turns without a label.
CREATE TABLE sums(
  session INTEGER NOT NULL, bucket INTEGER NOT NULL, class INTEGER NOT NULL, place INTEGER NOT NULL,
  branch INTEGER NOT NULL, activity INTEGER NOT NULL, version INTEGER NOT NULL, subagent INTEGER NOT NULL, {_MEASURES},
  PRIMARY KEY(session, bucket, class, place, branch, activity, version, subagent)) WITHOUT ROWID;

-- The same condensed for all sessions, by time (see `index.sums`); a left out activity is 0. Stale days.
CREATE TABLE time_sums(
  level INTEGER NOT NULL, bucket INTEGER NOT NULL, class INTEGER NOT NULL, activity INTEGER NOT NULL, {_MEASURES},
  PRIMARY KEY(level, bucket, class, activity)) WITHOUT ROWID;
CREATE TABLE stale_days(day INTEGER PRIMARY KEY);

-- Prompts with edits: the turn of the first edit, and the number of retries.
CREATE TABLE prompts(
  session INTEGER NOT NULL, prompt_id TEXT NOT NULL, turn INTEGER NOT NULL, retries INTEGER NOT NULL,
  PRIMARY KEY(session, prompt_id)) WITHOUT ROWID;
CREATE INDEX prompts_by_turn ON prompts(turn, retries);

-- First and last quarter of an hour of a session, its last turn on the main rail, and the event that ended it.
CREATE TABLE endings(
  session INTEGER PRIMARY KEY, first_bucket INTEGER NOT NULL, last_bucket INTEGER NOT NULL, turn INTEGER,
  event INTEGER);

-- Running totals of sessions as harnesses state them, each since a time (0: unknown). `cost` is USD.
CREATE TABLE cost_states(
  session INTEGER NOT NULL, source INTEGER NOT NULL, ts INTEGER NOT NULL, model INTEGER NOT NULL,
  since INTEGER NOT NULL,
  input INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL,
  cache_read INTEGER NOT NULL, cache_create_5m INTEGER NOT NULL, cache_create_1h INTEGER NOT NULL,
  searches INTEGER NOT NULL, cost REAL NOT NULL,
  PRIMARY KEY(session, source, ts, model)) WITHOUT ROWID;
-- Requests without a response in any log, and compactions, which no log has as requests; tokens are lower bounds.
CREATE TABLE requests(
  kind TEXT NOT NULL, key TEXT NOT NULL, session INTEGER NOT NULL, rail TEXT NOT NULL, source INTEGER NOT NULL,
  model INTEGER NOT NULL, ts INTEGER NOT NULL,
  input INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL,
  cache_read INTEGER NOT NULL, cache_create_5m INTEGER NOT NULL, cache_create_1h INTEGER NOT NULL,
  PRIMARY KEY(kind, key)) WITHOUT ROWID;
CREATE INDEX requests_by_session ON requests(session);
-- Usage that no turn accounts for; `requests` counts the requests in it whose tokens are a lower bound.
CREATE TABLE unlogged(
  session INTEGER NOT NULL, class INTEGER NOT NULL, ts INTEGER NOT NULL, place INTEGER NOT NULL,
  input INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL,
  cache_read INTEGER NOT NULL, cache_create_5m INTEGER NOT NULL, cache_create_1h INTEGER NOT NULL,
  searches INTEGER NOT NULL, requests INTEGER NOT NULL,
  PRIMARY KEY(session, class, ts)) WITHOUT ROWID;
CREATE INDEX unlogged_by_time ON unlogged(ts);
-- Sessions whose usage the harness counted again in the total of a fork.
CREATE TABLE inherited(
  session INTEGER NOT NULL, owner INTEGER NOT NULL, PRIMARY KEY(session, owner)) WITHOUT ROWID;
CREATE INDEX inherited_by_owner ON inherited(owner);

-- Stamps by key: the effective one of those on whole sessions, and all others. NULL removes the key.
CREATE TABLE session_tags(
  key TEXT NOT NULL, session_id TEXT NOT NULL, ts INTEGER NOT NULL, position INTEGER NOT NULL, value TEXT,
  PRIMARY KEY(key, session_id)) WITHOUT ROWID;
CREATE TABLE narrow_tags(
  key TEXT NOT NULL, position INTEGER NOT NULL, ts INTEGER NOT NULL, session_id TEXT, message_id TEXT,
  from_ts INTEGER, to_ts INTEGER, value TEXT,
  PRIMARY KEY(key, position)) WITHOUT ROWID;
"""

_FEED = """
-- What changed for the change feed (see `index.changes`): sessions, and turns that are no longer there.
CREATE TABLE changed_sessions(session INTEGER PRIMARY KEY, seq INTEGER NOT NULL, every INTEGER NOT NULL);
CREATE TABLE gone_turns(
  source INTEGER NOT NULL, message_id TEXT NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY(source, message_id)) WITHOUT ROWID;
-- Projects that turns had before, of moved turns and of those that are gone; 0 means none.
CREATE TABLE former_projects(
  source INTEGER NOT NULL, message_id TEXT NOT NULL, project INTEGER NOT NULL, project_key INTEGER NOT NULL,
  PRIMARY KEY(source, message_id, project, project_key)) WITHOUT ROWID;
INSERT INTO meta VALUES('changes', '0');
"""

_FINDINGS = """
-- Findings of a session and its descendants, stored at the `root` session until one of them changes (see `changed`).
CREATE TABLE findings(
  session INTEGER PRIMARY KEY, change INTEGER NOT NULL DEFAULT 0, root INTEGER, sizes TEXT, found BLOB);
"""

_PAID = """
  input INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL, cache_read INTEGER NOT NULL,
  cache_create_5m INTEGER NOT NULL, cache_create_1h INTEGER NOT NULL, searches INTEGER NOT NULL,
  entered INTEGER NOT NULL, calls INTEGER NOT NULL, errors INTEGER NOT NULL"""

_CAUSES = f"""
-- Rails that changed from this turn on, whose causes must be explained again.
CREATE TABLE changed(
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL, rail TEXT NOT NULL, turn_index INTEGER NOT NULL,
  times INTEGER NOT NULL DEFAULT 1, UNIQUE(session, rail));

-- Causes by number; `agent` is the type of the agent on whose rail it was paid. `level` is the report that needs its
-- target; `whole` is the cause of its whole tool, `subject` that of its subject; 0: itself.
CREATE TABLE causes(
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, tool INTEGER NOT NULL, target INTEGER NOT NULL, agent INTEGER NOT NULL,
  level INTEGER NOT NULL, whole INTEGER NOT NULL, subject INTEGER NOT NULL, UNIQUE(kind, tool, target, agent));

-- A segment is a range of message numbers of a rail (see `attribution.segments`). `state` is that of the rail at its
-- end, if another segment follows; `newest` is the time of the newest message up to its end.
CREATE TABLE segments(
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL, rail TEXT NOT NULL, n INTEGER NOT NULL,
  newest TEXT NOT NULL, state BLOB, UNIQUE(session, rail, n));

-- Turns of a segment that have all this in common, from `bucket` on over `span` more quarters of an hour. Grain 0: of a
-- UTC day, with all activities (0). Grain 1: the same by quarter of an hour, in the `quarters` groups after it, if more
-- than one. Grain 2: of a UTC day and one activity.
CREATE TABLE turn_groups(
  id INTEGER PRIMARY KEY, session INTEGER NOT NULL, segment INTEGER NOT NULL, grain INTEGER NOT NULL,
  activity INTEGER NOT NULL, bucket INTEGER NOT NULL, span INTEGER NOT NULL, quarters INTEGER NOT NULL,
  class INTEGER NOT NULL, place INTEGER NOT NULL, branch INTEGER NOT NULL, version INTEGER NOT NULL,
  subagent INTEGER NOT NULL);
CREATE INDEX turn_groups_by_segment ON turn_groups(session, segment);

-- Tokens of these turns by cause. Level 0 has each tool with all its targets.
CREATE TABLE cause_sums(
  turn_group INTEGER NOT NULL, level INTEGER NOT NULL, cause INTEGER NOT NULL, {_PAID},
  PRIMARY KEY(turn_group, level, cause)) WITHOUT ROWID;

-- The same for all sessions, by block of 32 days: for all activities together (0), and by activity. A stale block,
-- changed `times` times since, is not read.
CREATE TABLE cause_blocks(
  block INTEGER NOT NULL, level INTEGER NOT NULL, activity INTEGER NOT NULL,
  cause INTEGER NOT NULL, class INTEGER NOT NULL, place INTEGER NOT NULL, {_PAID},
  PRIMARY KEY(block, level, activity, cause, class, place)) WITHOUT ROWID;
CREATE TABLE stale_blocks(block INTEGER PRIMARY KEY, times INTEGER NOT NULL);
"""


# Without INDEXED BY, SQLite would scan a whole session by its primary key.
MESSAGES_BY_ID = "messages m INDEXED BY messages_by_message"


def is_message(message_id: str) -> str:
    """The condition that selects a message from `MESSAGES_BY_ID`.

    The plus keeps SQLite from replacing the column by the bound id, which would disable the index.
    """
    return f"+m.message_id = {message_id} AND substr(m.message_id, -5) = substr({message_id}, -5)"


TABLES = _TRUTH + _SUMS + _FEED + _FINDINGS + _CAUSES
LAYOUT = 62  # of the tables and of packed values: raise it when either changes, and every index is rebuilt
