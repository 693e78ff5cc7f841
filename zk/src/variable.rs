//! Global variables: the best value wins, regardless of the order in which values arrive (paper, 3.6).

use std::{fmt, sync::Arc};

use crate::{
    error::{Error, Result},
    store::{CreateMode, OneShot, Store, seen},
};

/// The outcome of publishing a value.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The value is in the znode.
    Written,
    /// The znode has this value, on which the new one does not improve.
    Beaten(Vec<u8>),
}

/// The number of times that a value may lose the race against others before the caller gets an error.
const TRIES_MAX: usize = 64;

/// Writes a value by compare-and-set, unless the znode's value is at least as good.
///
/// # Errors
/// Any error from the store. If the outcome is unknown, it may be called again: a value that is already
/// there counts as written.
pub async fn publish(
    store: &dyn Store,
    path: &str,
    value: &[u8],
    improves: &(dyn Fn(&[u8], &[u8]) -> bool + Sync),
) -> Result<Published> {
    for _ in 0..TRIES_MAX {
        let written = match store.get(path).await {
            Ok((old, _)) if old == value => return Ok(Published::Written),
            Ok((old, _)) if !improves(value, &old) => return Ok(Published::Beaten(old)),
            Ok((_, stat)) => store.set(path, value, Some(stat.version)).await.map(drop),
            Err(Error::NoNode { .. }) => store.create(path, value, CreateMode::Persistent).await.map(drop),
            Err(error) => return Err(error),
        };
        match written {
            Ok(()) => return Ok(Published::Written),
            // Another value was written in the meantime: compare again.
            Err(Error::BadVersion { .. } | Error::NodeExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Contended { path: path.to_owned(), tries: TRIES_MAX })
}

/// A watch on the values of a variable.
pub struct VariableWatch {
    store: Arc<dyn Store>,
    path: String,
    changed: Option<OneShot>,
}

impl VariableWatch {
    /// Creates a watch on a variable, which need not have a value yet.
    ///
    /// # Errors
    /// None at present; another store may have to send a request here.
    #[allow(clippy::unused_async, reason = "every watch is opened in the same way")]
    pub async fn open(store: Arc<dyn Store>, path: &str) -> Result<Self> {
        Ok(Self { store, path: path.to_owned(), changed: None })
    }

    /// Returns the current value at first, and then each new one. Values in quick succession may be skipped,
    /// except the last.
    ///
    /// # Errors
    /// Any error from the store; after a transient error it can be called again.
    ///
    /// # Cancellation safety
    /// Dropping the future may cause a value to be returned twice, but loses none.
    pub async fn next(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(changed) = &mut self.changed {
                let event = changed.await;
                self.changed = None;
                seen(&*self.store, &event)?;
            }
            let (stat, changed) = self.store.exists_and_watch(&self.path).await?;
            if stat.is_some() {
                match self.store.get(&self.path).await {
                    Ok((value, _)) => {
                        self.changed = Some(changed);
                        return Ok(value);
                    }
                    Err(Error::NoNode { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            self.changed = Some(changed);
        }
    }
}

impl fmt::Debug for VariableWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VariableWatch").field("path", &self.path).finish_non_exhaustive()
    }
}
