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
pub(crate) const MIGRATIONS: &[Migration] = &[Migration { name: "0001_history", sql: include_str!("migrations/0001_history.sql") }];

/// Marks a file as ours in `SQLite`'s header: `TURN` in ASCII.
const APPLICATION_ID: i32 = 0x5455_524e;

/// Runs the steps the file has not seen. A file that holds data is copied to `FILE.before-NAME` first.
///
/// # Errors
/// When the file is not ours or newer than `migrations`, or a step fails; the file then keeps the shape of the last step that ended.
pub(crate) fn migrate(connection: &mut Connection, migrations: &[Migration]) -> Result<(), StoreError> {
    let numbered = (1_u32..).zip(migrations);
    admit(connection, numbered.clone().map(|(number, _)| number).last().unwrap_or(0))?;
    for (number, migration) in numbered {
        if version(connection)? >= number {
            continue;
        }
        if number > 1 {
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
    connection.execute("VACUUM INTO ?1", [&copy]).map_err(refused(connection, "back up to", copy.as_str()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: Migration = Migration { name: "0002_test", sql: "ALTER TABLE snapshot ADD COLUMN note TEXT" };
    const BROKEN: Migration = Migration { name: "0003_broken", sql: "CREATE TABLE extra (a) STRICT; SELECT nonsense" };

    #[test]
    fn steps_run_once_and_a_copy_is_kept_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, MIGRATIONS).unwrap();
        connection.execute("INSERT INTO snapshot VALUES ('a', x'01')", []).unwrap();
        let both = [Migration { name: MIGRATIONS[0].name, sql: MIGRATIONS[0].sql }, NEXT];
        for _ in 0..2 {
            migrate(&mut connection, &both).unwrap();
        }
        assert_eq!(version(&connection).unwrap(), 2);
        let copy = Connection::open(folder.path().join("history.db.before-0002_test")).unwrap();
        assert_eq!(copy.query_row("SELECT count(*) FROM snapshot", [], |r| r.get::<_, i64>(0)).unwrap(), 1);
        assert!(matches!(migrate(&mut connection, MIGRATIONS), Err(StoreError::Newer { found: 2, known: 1, .. })));
    }

    #[test]
    fn a_step_that_fails_leaves_nothing_behind() {
        let mut connection = Connection::open_in_memory().unwrap();
        let all = [Migration { name: MIGRATIONS[0].name, sql: MIGRATIONS[0].sql }, NEXT, BROKEN];
        let error = migrate(&mut connection, &all).unwrap_err().to_string();
        assert!(error.contains("0003_broken"), "{error}");
        assert_eq!(version(&connection).unwrap(), 2);
        assert!(connection.prepare("SELECT * FROM extra").is_err(), "half a migration was kept");
    }

    #[test]
    fn a_database_of_somebody_else_is_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE theirs (a)").unwrap();
        assert!(matches!(migrate(&mut connection, MIGRATIONS), Err(StoreError::Foreign { found: 0, .. })));
        assert!(connection.prepare("SELECT * FROM plan").is_err());
    }
}
