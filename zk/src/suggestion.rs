//! Suggestions of a user to a running job, usually a better solution. The leader evaluates and answers them.
//!
//! Each suggestion is a separate znode. The answer is written into it, and then its author removes it.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    record,
    store::{CreateMode, OneShot, Store, seen},
};

/// The maximum size of a suggestion, in bytes of its JSON.
pub const SUGGESTION_BYTES_MAX: usize = 512 << 10;

/// The maximum number of suggestions of a job, answered or not; further ones are rejected. Concurrent
/// suggestions do not see each other, so there may be a few more.
pub const SUGGESTIONS_MAX: usize = 256;

#[derive(Debug, Serialize, Deserialize)]
struct Suggestion {
    value: Value,
    /// The number of times that a leader has started to evaluate it.
    #[serde(default)]
    begun: u32,
    answer: Option<Answer>,
}

/// The answer to a suggestion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether the suggestion made a difference.
    pub taken: bool,
    /// A text for the user.
    pub said: String,
}

/// Makes a suggestion to a job and returns the suggestion's name. The key, a part of that name, must be
/// unique: a repeated call with the same key makes no second suggestion.
///
/// # Errors
/// Any error from the store; [`Error::NoNode`] if there is no such job; [`Error::TooLarge`] for more than
/// [`SUGGESTION_BYTES_MAX`]; [`Error::TooMany`] if there are [`SUGGESTIONS_MAX`] already.
pub async fn suggest(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    key: &str,
    value: Value,
) -> Result<String> {
    let folder = cluster.job(job).suggestions();
    let content = record::write(&Suggestion { value, begun: 0, answer: None });
    let prefix = format!("s-{key}-");
    // The session's server may lag behind.
    store.sync(&folder).await?;
    let names = store.children(&folder).await?;
    let lying = names.len();
    if let Some(name) = names.into_iter().find(|name| name.starts_with(&prefix)) {
        return Ok(name);
    }
    if content.len() > SUGGESTION_BYTES_MAX {
        return Err(Error::TooLarge { path: folder, size: content.len(), limit: SUGGESTION_BYTES_MAX });
    }
    if lying >= SUGGESTIONS_MAX {
        return Err(Error::TooMany { path: folder, children: lying, limit: SUGGESTIONS_MAX });
    }
    let path = format!("{folder}/{prefix}");
    let made = store.create(&path, &content, CreateMode::PersistentSequential).await?;
    Ok(made.rsplit('/').next().unwrap_or_default().to_owned())
}

/// Waits for the answer to a suggestion, and removes it.
///
/// # Errors
/// Any error from the store.
///
/// # Cancellation safety
/// Dropping the future loses nothing, except possibly an answer that was just read.
pub async fn answered(store: &dyn Store, cluster: &ClusterPaths, job: &str, name: &str) -> Result<Answer> {
    let path = cluster.job(job).suggestion(name);
    loop {
        let (content, _, changed) = store.get_and_watch(&path).await?;
        if let Some(answer) = record::read::<Suggestion>(&path, &content)?.answer {
            // The suggestion is answered even if it stays; then it is removed with the job.
            if let Err(error) = store.delete(&path, None).await {
                tracing::debug!(%error, "an answered suggestion stays");
            }
            return Ok(answer);
        }
        seen(store, &changed.await)?;
    }
}

/// The number of evaluations after which a suggestion is suspected of crashing the nodes.
const TRIES_MAX: u32 = 2;

/// Records that a leader starts to evaluate a suggestion. Returns false if that has happened too often,
/// because those leaders were lost.
///
/// # Errors
/// Any error from the store.
pub async fn begin(store: &dyn Store, cluster: &ClusterPaths, job: &str, name: &str) -> Result<bool> {
    let path = cluster.job(job).suggestion(name);
    let (content, stat) = match store.get(&path).await {
        // Its author no longer waits.
        Err(Error::NoNode { .. }) => return Ok(true),
        other => other?,
    };
    let mut suggestion: Suggestion = record::read(&path, &content)?;
    suggestion.begun += 1;
    let may = suggestion.begun <= TRIES_MAX;
    match store.set(&path, &record::write(&suggestion), Some(stat.version)).await {
        Ok(_) | Err(Error::NoNode { .. }) => Ok(may),
        Err(error) => Err(error),
    }
}

/// The maximum length of an answer's text, in bytes; the rest is cut off.
pub const SAID_BYTES_MAX: usize = 4 << 10;

/// Answers a suggestion. A missing suggestion is not an error: the author no longer waits for the answer.
///
/// # Errors
/// Any error from the store.
pub async fn answer(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    name: &str,
    answer: &Answer,
) -> Result<()> {
    let Answer { taken, said } = answer;
    // A program may return a text of any length. Writing an answer that is too large for a znode would be
    // retried forever.
    let said = if said.len() <= SAID_BYTES_MAX {
        said.clone()
    } else {
        let end = (0..=SAID_BYTES_MAX).rev().find(|&end| said.is_char_boundary(end));
        format!("{}…", &said[..end.unwrap_or(0)])
    };
    let answer = Answer { taken: *taken, said };
    let content = record::write(&Suggestion { value: Value::Null, begun: 0, answer: Some(answer) });
    match store.set(&cluster.job(job).suggestion(name), &content, None).await {
        Ok(_) | Err(Error::NoNode { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A watch on the suggestions for a job.
pub struct Suggestions {
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    job: String,
    changed: Option<OneShot>,
}

impl Suggestions {
    /// Creates a watch on the suggestions for a job.
    pub fn new(store: Arc<dyn Store>, cluster: ClusterPaths, job: &str) -> Self {
        Self { store, cluster, job: job.to_owned(), changed: None }
    }

    /// Waits for the next unanswered suggestion and returns its name and value. Returns the same suggestion
    /// again until it is answered.
    ///
    /// # Errors
    /// Any error from the store.
    ///
    /// # Cancellation safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<(String, Value)> {
        let paths = self.cluster.job(&self.job);
        loop {
            if let Some(changed) = &mut self.changed {
                let event = changed.await;
                self.changed = None;
                seen(&*self.store, &event)?;
            }
            let (names, changed) = self.store.children_and_watch(&paths.suggestions()).await?;
            for name in names {
                let path = paths.suggestion(&name);
                let content = match self.store.get(&path).await {
                    Ok((content, _)) => content,
                    Err(Error::NoNode { .. }) => continue,
                    Err(error) => return Err(error),
                };
                match record::read::<Suggestion>(&path, &content) {
                    Ok(Suggestion { value, answer: None, .. }) => return Ok((name, value)),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "a suggestion cannot be read; it is skipped"),
                }
            }
            self.changed = Some(changed);
        }
    }
}

impl fmt::Debug for Suggestions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suggestions").field("job", &self.job).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{MemoryTree, store::Op};

    async fn job() -> (Arc<dyn Store>, ClusterPaths) {
        let (store, cluster): (Arc<dyn Store>, _) =
            (MemoryTree::new().connect(), ClusterPaths::new("test").unwrap());
        cluster.prepare(&*store).await.unwrap();
        let paths = cluster.job("j");
        let create = |path: String| Op::Create { path, data: Vec::new(), mode: CreateMode::Persistent };
        store.multi(vec![create(paths.record()), create(paths.suggestions())]).await.unwrap();
        (store, cluster)
    }

    #[tokio::test]
    async fn suggestion_is_returned_until_answered_and_answer_read_once() {
        let (store, cluster) = job().await;
        let name = suggest(&*store, &cluster, "j", "k", json!([1, 2])).await.unwrap();
        let mut suggestions = Suggestions::new(Arc::clone(&store), cluster.clone(), "j");
        for _ in 0..2 {
            assert_eq!(suggestions.next().await.unwrap(), (name.clone(), json!([1, 2])));
        }
        let said = Answer { taken: true, said: "good".to_owned() };
        answer(&*store, &cluster, "j", &name, &said).await.unwrap();
        assert_eq!(answered(&*store, &cluster, "j", &name).await.unwrap(), said);
        assert!(store.children(&cluster.job("j").suggestions()).await.unwrap().is_empty());
        // The author no longer waits.
        answer(&*store, &cluster, "j", &name, &said).await.unwrap();
    }

    #[tokio::test]
    async fn long_answer_is_truncated() {
        let (store, cluster) = job().await;
        let name = suggest(&*store, &cluster, "j", "k", json!(1)).await.unwrap();
        let said = Answer { taken: true, said: "ä".repeat(1 << 20) };
        answer(&*store, &cluster, "j", &name, &said).await.unwrap();
        let read = answered(&*store, &cluster, "j", &name).await.unwrap();
        assert!(read.taken && read.said.starts_with("ää") && read.said.ends_with('…'));
        assert!(read.said.len() <= SAID_BYTES_MAX + '…'.len_utf8());
    }

    #[tokio::test]
    async fn suggestion_repeated_with_same_key_is_made_once() {
        let (store, cluster) = job().await;
        let first = suggest(&*store, &cluster, "j", "k", json!(1)).await.unwrap();
        assert_eq!(suggest(&*store, &cluster, "j", "k", json!(1)).await.unwrap(), first);
        assert_ne!(suggest(&*store, &cluster, "j", "l", json!(1)).await.unwrap(), first);
    }

    #[tokio::test]
    async fn suggestion_that_crashes_leaders_is_abandoned() {
        let (store, cluster) = job().await;
        let name = suggest(&*store, &cluster, "j", "k", json!(null)).await.unwrap();
        for _ in 0..TRIES_MAX {
            assert!(begin(&*store, &cluster, "j", &name).await.unwrap());
        }
        assert!(!begin(&*store, &cluster, "j", &name).await.unwrap());
    }

    #[tokio::test]
    async fn oversized_or_excess_suggestion_is_refused() {
        let (store, cluster) = job().await;
        let large = json!("x".repeat(SUGGESTION_BYTES_MAX));
        assert!(matches!(suggest(&*store, &cluster, "j", "k", large).await, Err(Error::TooLarge { .. })));
        for key in 0..SUGGESTIONS_MAX {
            suggest(&*store, &cluster, "j", &key.to_string(), json!(1)).await.unwrap();
        }
        let error = suggest(&*store, &cluster, "j", "x", json!(1)).await.unwrap_err();
        let expected =
            Error::TooMany { path: cluster.job("j").suggestions(), children: 256, limit: SUGGESTIONS_MAX };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("256") && !error.to_string().contains("bytes"), "{error}");
        assert!(matches!(suggest(&*store, &cluster, "k", "x", json!(1)).await, Err(Error::NoNode { .. })));
    }
}
