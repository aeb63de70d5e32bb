//! The dictionary of series, as the writing thread remembers it: a point costs a look-up in memory instead of two statements.

use crate::error::{StoreError, refused};
use fleet::{Observation, Signal, Span};
use rusqlite::{OptionalExtension, Transaction};
use std::collections::{BTreeMap, HashMap};

/// Series remembered at once (about 150 bytes each); when there are more, remembering begins anew.
const REMEMBERED_MAX: usize = 1 << 18;

/// What the writing thread knows of the table `series`.
#[derive(Default)]
pub(crate) struct Dictionary {
    /// By signal, then by source, member and part.
    known: BTreeMap<Signal, HashMap<String, Known>>,
    version: i64,
    /// Room for the key that is looked up.
    key: String,
}

struct Known {
    id: i64,
    seen: i64,
}

impl Dictionary {
    /// To be called in each transaction before [`Self::number`]: what another connection wrote makes it forget.
    pub(crate) fn refresh(&mut self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        let version = transaction.pragma_query_value(None, "data_version", |row| row.get(0));
        let version = version.map_err(refused(transaction, "read", "the version of the data"))?;
        if version != self.version || self.known.values().map(HashMap::len).sum::<usize>() >= REMEMBERED_MAX {
            self.forget();
            self.version = version;
        }
        Ok(())
    }

    /// To be called when a transaction is taken back, and when series were removed.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    /// The number of an observation's series, entered in the table when new.
    pub(crate) fn number(&mut self, transaction: &Transaction<'_>, o: &Observation) -> rusqlite::Result<i64> {
        let (member, part) = (o.member.as_ref().map_or("", |member| member.as_str()), o.part.as_deref().unwrap_or(""));
        self.key.clear();
        // Ids and parts hold no control character.
        for text in [o.source.as_str(), member, part] {
            self.key.push_str(text);
            self.key.push('\n');
        }
        let hour = o.observed.floor(Span::HOUR).0;
        let known = self.known.entry(o.signal).or_default();
        if let Some(known) = known.get_mut(&self.key) {
            if known.seen < hour {
                see(transaction, known.id, hour)?;
                known.seen = hour;
            }
            return Ok(known.id);
        }
        let signal = o.signal.name();
        let names = (o.source.as_str(), signal.as_str(), member, part);
        let find = "SELECT id, seen FROM series WHERE source = ?1 AND signal = ?2 AND member = ?3 AND part = ?4";
        let found = transaction.prepare_cached(find)?.query_row(names, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (id, seen) = if let Some((id, seen)) = found {
            if seen < hour {
                see(transaction, id, hour)?;
            }
            (id, hour.max(seen))
        } else {
            let values = (names.0, names.1, names.2, names.3, hour);
            transaction.prepare_cached("INSERT INTO series (source, signal, member, part, seen) VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(values)?;
            (transaction.last_insert_rowid(), hour)
        };
        known.insert(self.key.clone(), Known { id, seen });
        Ok(id)
    }
}

fn see(transaction: &Transaction<'_>, id: i64, hour: i64) -> rusqlite::Result<()> {
    transaction.prepare_cached("UPDATE series SET seen = ?2 WHERE id = ?1")?.execute((id, hour))?;
    Ok(())
}
