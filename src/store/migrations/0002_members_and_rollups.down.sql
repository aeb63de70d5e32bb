-- Back from 0002 to 0001, for the program before it. Lost: roll-ups, and observations of members, which that shape cannot tell apart.

BEGIN IMMEDIATE;

CREATE TABLE series_old (
    id     INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    signal TEXT NOT NULL,
    part   TEXT NOT NULL,
    UNIQUE (source, signal, part)
) STRICT;
INSERT INTO series_old SELECT id, source, signal, part FROM series WHERE member = '';

CREATE TABLE observation_old (
    series   INTEGER NOT NULL REFERENCES series_old (id),
    observed INTEGER NOT NULL,
    received INTEGER NOT NULL,
    value    REAL NOT NULL,
    PRIMARY KEY (series, observed)
) STRICT, WITHOUT ROWID;
INSERT INTO observation_old
    SELECT series, minute * 60 + second, minute * 60 + second + lag, value FROM observation WHERE series IN (SELECT id FROM series_old) ORDER BY 1, 2;

DROP TABLE observation;
DROP TABLE series;
DROP TABLE rollup;
DROP TABLE summed_up;
ALTER TABLE series_old RENAME TO series;
ALTER TABLE observation_old RENAME TO observation;

PRAGMA user_version = 1;
COMMIT;
