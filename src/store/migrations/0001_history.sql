-- The first shape of the history. Instants are whole seconds since 1970-01-01T00:00:00Z; bodies are canonical JSON.

-- Dictionary of what is observed, so that a point costs two integers and a number.
CREATE TABLE series (
    id     INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    signal TEXT NOT NULL,
    part   TEXT NOT NULL, -- '' for the whole signal; SQL treats two NULLs as different
    UNIQUE (source, signal, part)
) STRICT;

CREATE TABLE observation (
    series   INTEGER NOT NULL REFERENCES series (id),
    observed INTEGER NOT NULL,
    received INTEGER NOT NULL,
    value    REAL NOT NULL,
    PRIMARY KEY (series, observed)
) STRICT, WITHOUT ROWID;

CREATE TABLE workload_window (
    workload TEXT NOT NULL,
    start    INTEGER NOT NULL,
    length   INTEGER NOT NULL,
    body     BLOB NOT NULL,
    PRIMARY KEY (workload, start, length)
) STRICT, WITHOUT ROWID;
CREATE INDEX workload_window_start ON workload_window (start);

CREATE TABLE forecast (
    id       TEXT PRIMARY KEY,
    workload TEXT NOT NULL,
    origin   INTEGER NOT NULL,
    body     BLOB NOT NULL
) STRICT;
CREATE INDEX forecast_origin ON forecast (origin, workload);

CREATE TABLE problem (
    id    TEXT PRIMARY KEY,
    as_of INTEGER NOT NULL,
    body  BLOB NOT NULL
) STRICT;
CREATE INDEX problem_as_of ON problem (as_of);

CREATE TABLE plan (
    id         TEXT PRIMARY KEY,
    generation INTEGER NOT NULL UNIQUE,
    as_of      INTEGER NOT NULL,
    problem    TEXT NOT NULL,
    body       BLOB NOT NULL
) STRICT;
CREATE INDEX plan_as_of ON plan (as_of);

CREATE TABLE outcome (
    id    TEXT PRIMARY KEY,
    start INTEGER NOT NULL,
    body  BLOB NOT NULL
) STRICT;
CREATE INDEX outcome_start ON outcome (start);

CREATE TABLE calibration (
    generation INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    made_at    INTEGER NOT NULL,
    body       BLOB NOT NULL
) STRICT;

-- Named states of the program that only their last value matters of.
CREATE TABLE snapshot (
    name TEXT PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
