//! Tidying: what means nothing any more is removed while a job goes on.
//!
//! | what | means something as long as |
//! |---|---|
//! | an earlier attempt | never: its tasks began anew |
//! | chunks of a parked task | it is parked, or a txn id names them |
//! | chunks of an output | the output names them |
//! | chunks of a letter | its sender and its addressee are at work on the attempt |
//! | txn ids, mailbox of a node | it has not left |
//!
//! Large data is written before the transaction that names it, so what nobody names may be about to be named. Only what a node has
//! written that has left cleanly, and so writes no more, is judged by that.
//!
//! Whoever leads calls it now and then. It decides nothing: if it fails in the middle, the next call does the rest.

use std::collections::BTreeSet;

use crate::{
    blob,
    error::{Error, Result},
    job::remove,
    paths::{AttemptPaths, JobPaths, parked_id},
    store::Store,
};

/// Removes the attempts before this one.
///
/// # Errors
/// Whatever the store refuses.
pub async fn earlier_attempts(store: &dyn Store, job: &JobPaths, current: u32) -> Result<()> {
    for name in store.children(&job.attempts()).await? {
        if name.parse::<u32>().is_ok_and(|attempt| attempt < current) {
            remove(store, format!("{}/{name}", job.attempts())).await?;
        }
    }
    Ok(())
}

/// Removes what the nodes that have left an attempt have left there and nobody needs.
///
/// # Errors
/// Whatever the store refuses; [`Error::NoNode`] if there is no such attempt any more.
pub async fn left_behind(store: &dyn Store, attempt: &AttemptPaths) -> Result<()> {
    store.sync(&attempt.base()).await?;
    let gone: BTreeSet<String> = store.children(&attempt.left()).await?.into_iter().collect();
    if gone.is_empty() {
        return Ok(());
    }
    for mailbox in store.children(&attempt.mail()).await?.into_iter().filter(|name| gone.contains(name)) {
        remove(store, attempt.mailbox(&mailbox)).await?;
    }
    // The chunks first: what a txn id names is known by it alone.
    chunks(store, attempt, &gone).await?;
    for txn in store.children(&attempt.txns()).await? {
        if node_of(&txn).is_some_and(|node| gone.contains(node)) {
            removed(store.delete(&attempt.txn(&txn), None).await)?;
        }
    }
    Ok(())
}

/// Removes the chunks that nobody names, of nodes that are gone.
async fn chunks(store: &dyn Store, attempt: &AttemptPaths, gone: &BTreeSet<String>) -> Result<()> {
    let mut orphans = store.children(&attempt.large()).await?;
    orphans.retain(|name| Chunks::of(name).is_some_and(|chunks| chunks.is_forsaken(gone)));
    if orphans.is_empty() {
        return Ok(());
    }
    // In this order: a claim makes a txn id of a parked task.
    let mut named: BTreeSet<String> = BTreeSet::new();
    for parked in store.children(&attempt.parked()).await? {
        if let Some((task, txn)) = parked.split_once(crate::paths::PARKED_BY) {
            debug_assert_eq!(task, parked_id(&parked));
            named.insert(format!("{txn}-{task}"));
        }
    }
    let txns = store.children(&attempt.txns()).await?.into_iter().map(|txn| attempt.txn(&txn));
    let outputs = gone.iter().map(|node| attempt.output(node));
    let paths: Vec<String> = txns.chain(outputs).collect();
    let asked: Vec<_> = paths.iter().map(|path| store.get(path)).collect();
    for (path, answer) in paths.iter().zip(asked) {
        match answer.await {
            Ok((content, _)) => named.extend(blob::folder(path, &content)?.and_then(last_part)),
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    for orphan in orphans.into_iter().filter(|orphan| !named.contains(orphan)) {
        remove(store, attempt.large_of(&orphan)).await?;
    }
    Ok(())
}

fn last_part(path: String) -> Option<String> {
    path.rsplit('/').next().map(str::to_owned)
}

/// The node whose transaction this is, or whose task.
fn node_of(id: &str) -> Option<&str> {
    id.split('-').next()
}

fn removed(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::NoNode { .. }) => Ok(()),
        other => other,
    }
}

/// Whose chunks they are, by the name of their folder.
#[derive(Debug, PartialEq, Eq)]
enum Chunks<'a> {
    /// Of a task that the node has parked, or of its output.
    Written { by: &'a str },
    /// Of a letter.
    Letter { from: &'a str, to: &'a str },
}

impl<'a> Chunks<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let mut parts = name.split('-');
        let first = parts.next()?;
        if first == crate::mail::CHUNKS {
            return Some(Self::Letter { from: parts.next()?, to: parts.next()? });
        }
        Some(Self::Written { by: first })
    }

    /// Whether nobody will name them who does not by now.
    fn is_forsaken(&self, gone: &BTreeSet<String>) -> bool {
        match self {
            Self::Written { by } => gone.contains(*by),
            Self::Letter { from, to } => gone.contains(*from) || gone.contains(*to),
        }
    }
}

#[cfg(test)]
#[path = "tidy_tests.rs"]
mod tests;
