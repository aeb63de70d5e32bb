-- Members of a target in the name of a series; observations by minute; what they sum up to.
--
-- Observations move from (series, observed) to (minute, series, second): what comes in together lies together. With tens of thousands of
-- series, an append then writes some hundred pages where it wrote one page a series, and a minute is summed up by reading one range.
--
-- Back: put the copy made before this step (FILE.before-0002_members_and_rollups) in place of the file, or run
-- `sqlite3 FILE < 0002_members_and_rollups.down.sql` while no turnaround runs.

CREATE TABLE series_new (
    id     INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    signal TEXT NOT NULL,
    member TEXT NOT NULL, -- '' for the target itself; SQL treats two NULLs as different
    part   TEXT NOT NULL, -- '' for the whole signal
    seen   INTEGER NOT NULL, -- start of the last hour something of it was observed in
    UNIQUE (source, signal, member, part)
) STRICT;
INSERT INTO series_new SELECT id, source, signal, '', part, max(observed) - max(observed) % 3600 FROM series JOIN observation ON series = id GROUP BY id;

CREATE TABLE observation_new (
    minute INTEGER NOT NULL, -- minutes since the epoch, rounded down
    series INTEGER NOT NULL, -- id of its series; a reference would cost a look-up a point
    second INTEGER NOT NULL, -- 0 to 59 in that minute
    lag    INTEGER NOT NULL, -- seconds from observed to received
    value  REAL NOT NULL,
    PRIMARY KEY (minute, series, second)
) STRICT, WITHOUT ROWID;
INSERT INTO observation_new
    SELECT (observed - (observed % 60 + 60) % 60) / 60, series, (observed % 60 + 60) % 60, received - observed, value FROM observation ORDER BY 1, 2, 3;

DROP TABLE observation;
DROP TABLE series;
ALTER TABLE series_new RENAME TO series;
ALTER TABLE observation_new RENAME TO observation;

-- Series summed up by minutes (length 60) and hours (length 3600) of UTC.
CREATE TABLE rollup (
    length INTEGER NOT NULL,
    start  INTEGER NOT NULL,
    series INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    mean   REAL NOT NULL,
    min    REAL NOT NULL,
    max    REAL NOT NULL,
    last   REAL NOT NULL,
    PRIMARY KEY (length, start, series)
) STRICT, WITHOUT ROWID;

-- The mark: every minute before it, and every hour before its hour, is summed up in `rollup`, late observations included. None yet: no row.
CREATE TABLE summed_up (
    only   INTEGER PRIMARY KEY CHECK (only = 0),
    minute INTEGER NOT NULL
) STRICT;
