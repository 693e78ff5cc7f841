//! Global variables: the best value wins, whatever the order in which values arrive (paper, 3.6).

use std::{fmt, sync::Arc};

use crate::{
    error::{Error, Result},
    store::{CreateMode, OneShot, Store, seen},
};

/// What became of a value.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// It is in the znode.
    Written,
    /// The znode has this one, on which it does not improve.
    Beaten(Vec<u8>),
}

/// How often a value may lose the race against others before it is for the caller to try again.
const TRIES_MAX: usize = 64;

/// Writes a value unless the znode has one that it does not improve on, by compare-and-set.
///
/// # Errors
/// Whatever the store refuses. If the outcome is unknown it may be called again: a value that is there
/// already is taken for written.
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
            // Another value came between: the rule decides again.
            Err(Error::BadVersion { .. } | Error::NodeExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Contended { path: path.to_owned(), tries: TRIES_MAX })
}

/// The values of a variable as they change.
pub struct VariableWatch {
    store: Arc<dyn Store>,
    path: String,
    changed: Option<OneShot>,
}

impl VariableWatch {
    /// Begins to watch a variable, which need not have a value yet.
    ///
    /// # Errors
    /// None at present; a store that has to ask may have some.
    #[allow(clippy::unused_async, reason = "every watch is opened in the same way")]
    pub async fn open(store: Arc<dyn Store>, path: &str) -> Result<Self> {
        Ok(Self { store, path: path.to_owned(), changed: None })
    }

    /// The value it has, and then each one it gets. Values that follow each other closely may be passed over;
    /// the last never is.
    ///
    /// # Errors
    /// Whatever the store refuses; after a transient error it can be called again.
    ///
    /// # Cancellation safety
    /// Dropping the future may let a value be told twice, and loses none.
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
