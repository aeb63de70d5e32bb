-- What was acknowledged and has not reached the server yet, and the latest state, so that a server that is away costs nothing.

-- Lines of the line protocol, in the order they were acknowledged.
CREATE TABLE queue (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    rank      INTEGER NOT NULL, -- what is given up first when there is no room: 0 observations, 1 windows, 2 decisions, 3 states
    bucket    TEXT NOT NULL,
    name      TEXT NOT NULL,    -- of a state: a later one takes its place; else ''
    points    INTEGER NOT NULL,
    queued_at INTEGER NOT NULL, -- seconds since 1970
    bytes     INTEGER NOT NULL,
    lines     TEXT NOT NULL
) STRICT;
CREATE INDEX queue_rank ON queue (rank, id);
CREATE INDEX queue_name ON queue (name) WHERE name != '';

-- Every document that is known to be kept, so that one is never written twice and generations never go back.
CREATE TABLE document (
    kind       TEXT NOT NULL,
    id         TEXT NOT NULL,
    generation INTEGER NOT NULL,
    at         INTEGER NOT NULL, -- nanoseconds since 1970: where it stands on the server
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX document_at ON document (kind, at);

-- The latest plan, its problem, the latest calibration and every state.
CREATE TABLE kept (
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    kept_at INTEGER NOT NULL, -- a state: milliseconds since 1970
    body    BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- Points given up, by reason, and points sent, since the file was made.
CREATE TABLE tally (
    name   TEXT PRIMARY KEY,
    points INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The bounds of observations that reached the server too late for its own tasks to sum them up: at most one row.
CREATE TABLE late (
    id    INTEGER PRIMARY KEY CHECK (id = 0),
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL
) STRICT;
