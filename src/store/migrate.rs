//! Brings an older file to today's shape: numbered SQL files, each in one transaction, the number kept in the file itself.

use crate::error::{StoreError, location, refused};
use rusqlite::{Connection, TransactionBehavior};

/// One step from a shape to the next.
pub(crate) struct Migration {
    /// Name of its file.
    pub name: &'static str,
    /// What it does.
    pub sql: &'static str,
}

/// All steps, in order. A step that was released is never edited; the next one follows it.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration { name: "0001_history", sql: include_str!("migrations/0001_history.sql") },
    Migration { name: "0002_members_and_rollups", sql: include_str!("migrations/0002_members_and_rollups.sql") },
];

/// Marks a file as ours in `SQLite`'s header: `TURN` in ASCII.
const APPLICATION_ID: i32 = 0x5455_524e;

/// Runs the steps the file has not seen. A file that holds data is copied to `FILE.before-NAME` first.
///
/// # Errors
/// When the file is not ours or newer than `migrations`, or a step fails; the file then keeps the shape of the last step that ended.
pub(crate) fn migrate(connection: &mut Connection, migrations: &[Migration]) -> Result<(), StoreError> {
    let numbered = (1_u32..).zip(migrations);
    admit(connection, numbered.clone().map(|(number, _)| number).last().unwrap_or(0))?;
    let new = version(connection)? == 0;
    for (number, migration) in numbered {
        if version(connection)? >= number {
            continue;
        }
        if !new {
            back_up(connection, migration.name)?;
        }
        let failed = refused(connection, "migrate to", migration.name);
        run(connection, number, migration).map_err(failed)?;
        tracing::info!(store = location(connection), migration = migration.name, "store migrated");
    }
    Ok(())
}

/// One step, unless another process took it in the meantime.
fn run(connection: &mut Connection, number: u32, migration: &Migration) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let seen: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if seen >= number {
        return Ok(());
    }
    transaction.execute_batch(migration.sql)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", number)?;
    transaction.commit()
}

/// Refuses files of others and of later programs.
fn admit(connection: &Connection, known: u32) -> Result<(), StoreError> {
    let found = version(connection)?;
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(refused(connection, "read", "the application id"))?;
    let tables: u32 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(refused(connection, "read", "the list of tables"))?;
    let fresh = tables == 0 && found == 0 && application == 0;
    if !fresh && application != APPLICATION_ID {
        return Err(StoreError::Foreign { location: location(connection), found: application });
    }
    if found > known {
        return Err(StoreError::Newer { location: location(connection), found, known });
    }
    Ok(())
}

fn version(connection: &Connection) -> Result<u32, StoreError> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(refused(connection, "read", "the version of the file"))
}

fn back_up(connection: &Connection, name: &str) -> Result<(), StoreError> {
    let Some(path) = connection.path().filter(|path| !path.is_empty()) else { return Ok(()) };
    let copy = format!("{path}.before-{name}");
    // Under another name until it is whole; one that an earlier attempt left is in the way.
    let partial = format!("{copy}.partial");
    let at = |source| StoreError::Backup { path: partial.clone().into(), source };
    match std::fs::remove_file(&partial) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => return Err(at(source)),
        _ => {}
    }
    connection.execute("VACUUM INTO ?1", [&partial]).map_err(refused(connection, "back up to", partial.as_str()))?;
    std::fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(at)?;
    std::fs::rename(&partial, &copy).map_err(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: Migration = Migration { name: "0003_test", sql: "ALTER TABLE snapshot ADD COLUMN note TEXT" };
    const BROKEN: Migration = Migration { name: "0004_broken", sql: "CREATE TABLE extra (a) STRICT; SELECT nonsense" };
    const DOWN: &str = include_str!("migrations/0002_members_and_rollups.down.sql");

    /// All steps there are, then these.
    fn and_then(more: Vec<Migration>) -> Vec<Migration> {
        MIGRATIONS.iter().map(|m| Migration { name: m.name, sql: m.sql }).chain(more).collect()
    }

    #[test]
    fn steps_run_once_and_a_copy_is_kept_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, MIGRATIONS).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "a new file needs no copy");
        connection.execute("INSERT INTO snapshot VALUES ('a', x'01')", []).unwrap();
        // What an attempt that was killed left behind.
        std::fs::write(folder.path().join("history.db.before-0003_test.partial"), "half a copy").unwrap();
        for _ in 0..2 {
            migrate(&mut connection, &and_then(vec![NEXT])).unwrap();
        }
        assert_eq!(version(&connection).unwrap(), 3);
        let copy = Connection::open(folder.path().join("history.db.before-0003_test")).unwrap();
        assert_eq!(copy.query_row("SELECT count(*) FROM snapshot", [], |r| r.get::<_, i64>(0)).unwrap(), 1);
        assert!(!folder.path().join("history.db.before-0003_test.partial").exists());
        assert!(matches!(migrate(&mut connection, MIGRATIONS), Err(StoreError::Newer { found: 3, known: 2, .. })));
    }

    #[test]
    fn a_step_that_fails_leaves_nothing_behind() {
        let mut connection = Connection::open_in_memory().unwrap();
        let error = migrate(&mut connection, &and_then(vec![NEXT, BROKEN])).unwrap_err().to_string();
        assert!(error.contains("0004_broken"), "{error}");
        assert_eq!(version(&connection).unwrap(), 3);
        assert!(connection.prepare("SELECT * FROM extra").is_err(), "half a migration was kept");
    }

    /// A file of the first shape, with points on both sides of 1970 and of a minute.
    const FIRST: &str = "INSERT INTO series VALUES (4, 'a', 'gpu_power', ''), (7, 'a', 'queue_time', 'le=0.5'), (9, 'silent', 'gpu_power', '');
        INSERT INTO observation VALUES (4, -61, -60, 0.25), (4, 1700000039, 1700000041, 7.5), (4, 1700000040, 1700000040, 8.0), (7, 1700000040, 1700000039, 3.0)";

    fn rows(connection: &Connection) -> Vec<(String, i64, i64, f64)> {
        let sql =
            "SELECT source || '/' || signal || '/' || part, observed, received, value FROM series JOIN observation ON series = id ORDER BY series, observed";
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn a_file_of_the_first_shape_reads_the_same_and_can_go_back() {
        use crate::{Options, Resolution, Store, wait};
        use fleet::{Signal, TargetId, Timestamp};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, &MIGRATIONS[..1]).unwrap();
        connection.execute_batch(FIRST).unwrap();
        let before = rows(&connection);
        drop(connection);

        let store = Store::open(&path, Options::default()).unwrap();
        let source = TargetId::new("a").unwrap();
        let (from, to) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        let found = wait(store.observations(&source, None, from, to)).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|o| (format!("{}/{}/{}", o.source, o.signal.name(), o.part.as_deref().unwrap_or("")), o.observed.0, o.received.0, o.value))
            .collect();
        assert_eq!(found, before);
        let minutes = |store: &Store| wait(store.rollups(&source, Some(Signal::GpuPower), Resolution::Minute, from, to)).unwrap();
        let open = minutes(&store);
        assert_eq!(open.iter().map(|r| r.start.0).collect::<Vec<_>>(), [-120, 1_699_999_980, 1_700_000_040]);
        wait(store.retain(Timestamp(1_700_010_000))).unwrap();
        let kept = minutes(&store);
        assert_eq!(kept, open[1..], "what was summed up when read is what is kept");
        wait(store.check()).unwrap();
        drop(store);

        let mut connection = Connection::open(&path).unwrap();
        connection.execute_batch(DOWN).unwrap();
        // Long past its retention, the oldest went.
        assert_eq!(rows(&connection), before[1..]);
        migrate(&mut connection, &MIGRATIONS[..1]).unwrap();
        migrate(&mut connection, MIGRATIONS).unwrap();
        let copy = Connection::open(folder.path().join("history.db.before-0002_members_and_rollups")).unwrap();
        assert_eq!(rows(&copy), before[1..]);
    }

    #[test]
    fn a_database_of_somebody_else_is_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE theirs (a)").unwrap();
        assert!(matches!(migrate(&mut connection, MIGRATIONS), Err(StoreError::Foreign { found: 0, .. })));
        assert!(connection.prepare("SELECT * FROM plan").is_err());
    }
}
