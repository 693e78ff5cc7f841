//! The file of a durable tree: a redb database with a table of znodes. Each request is one transaction, which
//! is on disk when the call returns.

use std::{io, path::Path};

use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, StorageError, TableDefinition, TableError,
};

use super::FolderLock;
use crate::{
    error::{Error, Result},
    tree::{Change, Keeper, Kept, Tree},
};

/// The znodes by their paths: the version, the number of the next sequential child, the data.
const ZNODES: TableDefinition<'static, &str, (i32, u32, &[u8])> = TableDefinition::new("znodes");
/// The identification of the file, by the project's name.
const ABOUT: TableDefinition<'static, &str, u64> = TableDefinition::new("taskwork");
/// The key in [`ABOUT`] of the number of the format.
const FORMAT: &str = "format";
/// The number of the format that this code writes.
const FORMAT_NOW: u64 = 1;

/// The size of redb's cache, in bytes. Nothing is read twice, since the whole tree is in memory.
const CACHE_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct DatabaseFile {
    database: Database,
    /// Its name, for messages.
    name: String,
    /// Held as long as the database is open; fields are dropped in order.
    _lock: FolderLock,
}

pub(super) enum Unreadable {
    Foreign(String),
    Damaged(String),
    Io(io::Error),
    InUse,
}

impl DatabaseFile {
    /// Creates a file without znodes.
    pub(super) fn create(path: &Path) -> std::result::Result<(), Unreadable> {
        let database = Builder::new().set_cache_size(CACHE_BYTES).create(path)?;
        let transaction = database.begin_write().map_err(redb::Error::from)?;
        transaction.open_table(ABOUT)?.insert(FORMAT, FORMAT_NOW)?;
        transaction.open_table(ZNODES)?;
        transaction.commit().map_err(redb::Error::from)?;
        // Unlike dropping the database, this reports errors.
        database.close()?;
        Ok(())
    }

    /// Opens a file and reads its znodes into an empty tree.
    pub(super) fn open(
        path: &Path,
        lock: FolderLock,
        tree: &mut Tree,
    ) -> std::result::Result<Self, Unreadable> {
        let mut builder = Builder::new();
        // Otherwise the checksums would be checked only after a crash.
        builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
        let database = builder.open(path)?;
        let reading = database.begin_read().map_err(redb::Error::from)?;
        let about = match reading.open_table(ABOUT) {
            Err(TableError::TableDoesNotExist(_)) => {
                return Err(Unreadable::Foreign("a database of something else".to_owned()));
            }
            other => other?,
        };
        let format = about.get(FORMAT)?.map(|format| format.value());
        if format != Some(FORMAT_NOW) {
            let format = format.map_or_else(|| "none".to_owned(), |format| format.to_string());
            let reason = format!("its format is {format}, and this version has format {FORMAT_NOW}");
            return Err(Unreadable::Foreign(reason));
        }
        // In the order of the paths, so that parents come first.
        for entry in reading.open_table(ZNODES)?.range::<&str>(..)? {
            let (path, znode) = entry?;
            let (version, next_number, data) = znode.value();
            let kept = Kept { path: path.value(), version, next_number, data };
            tree.restore(kept).map_err(Unreadable::Damaged)?;
        }
        Ok(Self { database, name: path.display().to_string(), _lock: lock })
    }

    fn write(&self, changes: &[Change<'_>]) -> std::result::Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut znodes = transaction.open_table(ZNODES)?;
            for change in changes {
                match *change {
                    Change::Put(Kept { path, version, next_number, data }) => {
                        znodes.insert(path, (version, next_number, data))?;
                    }
                    Change::Remove(path) => {
                        znodes.remove(path)?;
                    }
                }
            }
        }
        // With the default durability, it returns when the transaction is on disk.
        transaction.commit()?;
        Ok(())
    }
}

impl Keeper for DatabaseFile {
    fn keep(&mut self, changes: &[Change<'_>]) -> Result<()> {
        self.write(changes)
            .map_err(|error| Error::NotKept { file: self.name.clone(), reason: error.to_string() })
    }
}

impl From<redb::Error> for Unreadable {
    fn from(error: redb::Error) -> Self {
        match error {
            // Missing or inconsistent content, although the file was complete once.
            redb::Error::Io(error)
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                Self::Damaged(error.to_string())
            }
            redb::Error::Io(error) => Self::Io(error),
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            error => Self::Damaged(error.to_string()),
        }
    }
}

impl From<DatabaseError> for Unreadable {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::UpgradeRequired(version) => {
                Self::Foreign(format!("a database of format {version}"))
            }
            DatabaseError::Storage(StorageError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Self::Foreign(error.to_string())
            }
            error => redb::Error::from(error).into(),
        }
    }
}

impl From<TableError> for Unreadable {
    fn from(error: TableError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<StorageError> for Unreadable {
    fn from(error: StorageError) -> Self {
        redb::Error::from(error).into()
    }
}
