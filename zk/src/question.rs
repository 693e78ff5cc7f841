//! Questions about a running job that one of its nodes can answer, such as why something waits.
//!
//! Each question is a separate znode. The node that knows the answer writes it into the znode, and the user's
//! client removes it. Nothing depends on questions: an unanswered one stays until the job is forgotten.

use std::{collections::BTreeSet, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    record,
    store::{CreateMode, OneShot, Store, seen},
};

/// The maximum size of a question or an answer, in bytes of its JSON.
pub const ANSWER_BYTES_MAX: usize = 512 << 10;

/// The maximum number of questions about a job; further ones are rejected. Concurrent questions do not see
/// each other, so there may be a few more.
pub const QUESTIONS_MAX: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
struct Question {
    question: Value,
    answer: Option<Value>,
}

/// Asks a question about a job, and returns its name. The key, a part of that name, must be unique: a
/// repeated call with the same key asks no second question.
///
/// # Errors
/// Any error from the store; [`Error::NoNode`] if there is no such job; [`Error::TooLarge`] for more than
/// [`ANSWER_BYTES_MAX`]; [`Error::TooMany`] if there are [`QUESTIONS_MAX`] already.
pub async fn ask(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    key: &str,
    question: Value,
) -> Result<String> {
    let (folder, name) = (cluster.job(job).questions(), format!("q-{key}"));
    let content = record::write(&Question { question, answer: None });
    if content.len() > ANSWER_BYTES_MAX {
        return Err(Error::TooLarge { path: folder, size: content.len(), limit: ANSWER_BYTES_MAX });
    }
    // The folder is created by the first question about the job.
    match store.create(&folder, b"", CreateMode::Persistent).await {
        Ok(_) | Err(Error::NodeExists { .. }) => {}
        Err(error) => return Err(error),
    }
    let asked = store.children(&folder).await?.len();
    if asked >= QUESTIONS_MAX {
        return Err(Error::TooMany { path: folder, children: asked, limit: QUESTIONS_MAX });
    }
    match store.create(&cluster.job(job).question(&name), &content, CreateMode::Persistent).await {
        Ok(_) | Err(Error::NodeExists { .. }) => Ok(name),
        Err(error) => Err(error),
    }
}

/// Waits for the answer to a question, and removes it.
///
/// # Errors
/// Any error from the store.
///
/// # Cancellation safety
/// Dropping the future loses nothing, except possibly an answer that was just read.
pub async fn answered(store: &dyn Store, cluster: &ClusterPaths, job: &str, name: &str) -> Result<Value> {
    let path = cluster.job(job).question(name);
    loop {
        let (content, _, changed) = store.get_and_watch(&path).await?;
        if let Some(answer) = record::read::<Question>(&path, &content)?.answer {
            withdraw(store, cluster, job, name).await;
            return Ok(answer);
        }
        seen(store, &changed.await)?;
    }
}

/// Removes a question. If that fails, it stays until the job is forgotten.
pub async fn withdraw(store: &dyn Store, cluster: &ClusterPaths, job: &str, name: &str) {
    match store.delete(&cluster.job(job).question(name), None).await {
        Ok(()) | Err(Error::NoNode { .. }) => {}
        Err(error) => tracing::debug!(%error, "a question stays"),
    }
}

/// Answers a question. A missing question is not an error: the user no longer waits for the answer.
///
/// # Errors
/// Any error from the store; [`Error::TooLarge`] for more than [`ANSWER_BYTES_MAX`].
pub async fn answer(
    store: &dyn Store,
    cluster: &ClusterPaths,
    job: &str,
    name: &str,
    answer: Value,
) -> Result<()> {
    let path = cluster.job(job).question(name);
    let content = record::write(&Question { question: Value::Null, answer: Some(answer) });
    if content.len() > ANSWER_BYTES_MAX {
        return Err(Error::TooLarge { path, size: content.len(), limit: ANSWER_BYTES_MAX });
    }
    match store.set(&path, &content, None).await {
        Ok(_) | Err(Error::NoNode { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A watch on the questions about a job.
pub struct Questions {
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    job: String,
    changed: Option<OneShot>,
    /// The returned questions that still exist.
    returned: BTreeSet<String>,
}

impl Questions {
    /// Creates a watch on the questions about a job.
    pub fn new(store: Arc<dyn Store>, cluster: ClusterPaths, job: &str) -> Self {
        Self { store, cluster, job: job.to_owned(), changed: None, returned: BTreeSet::new() }
    }

    /// Waits for the next unanswered question and returns its name and content. Each is returned once.
    ///
    /// # Errors
    /// Any error from the store.
    ///
    /// # Cancellation safety
    /// Dropping the future may lose a question that was just read.
    pub async fn next(&mut self) -> Result<(String, Value)> {
        let paths = self.cluster.job(&self.job);
        loop {
            if let Some(changed) = &mut self.changed {
                let event = changed.await;
                self.changed = None;
                seen(&*self.store, &event)?;
            }
            let (there, put_up) = self.store.exists_and_watch(&paths.questions()).await?;
            if there.is_none() {
                self.changed = Some(put_up);
                continue;
            }
            // Otherwise this watch would remain set without an observer.
            drop(put_up);
            let (names, changed) = self.store.children_and_watch(&paths.questions()).await?;
            self.returned.retain(|name| names.contains(name));
            for name in names {
                if !self.returned.insert(name.clone()) {
                    continue;
                }
                let path = paths.question(&name);
                let content = match self.store.get(&path).await {
                    Ok((content, _)) => content,
                    Err(Error::NoNode { .. }) => continue,
                    Err(error) => return Err(error),
                };
                match record::read::<Question>(&path, &content) {
                    Ok(Question { question, answer: None }) => return Ok((name, question)),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "a question cannot be read; it is skipped"),
                }
            }
            self.changed = Some(changed);
        }
    }
}

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Questions").field("job", &self.job).finish_non_exhaustive()
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
        let path = cluster.job("j").record();
        store.multi(vec![Op::Create { path, data: Vec::new(), mode: CreateMode::Persistent }]).await.unwrap();
        (store, cluster)
    }

    #[tokio::test]
    async fn question_is_returned_once_per_node_and_answer_read_once() {
        let (store, cluster) = job().await;
        let nodes = [(); 2].map(|()| Questions::new(Arc::clone(&store), cluster.clone(), "j"));
        let [mut one, mut other] = nodes;
        // One watch is set before the folder exists.
        let waiting = tokio::spawn(async move { (one.next().await.unwrap(), one) });
        let name = ask(&*store, &cluster, "j", "k", json!({ "task": 7 })).await.unwrap();
        assert_eq!(ask(&*store, &cluster, "j", "k", json!(1)).await.unwrap(), name, "the same question");
        let (returned, mut one) = waiting.await.unwrap();
        assert_eq!(returned, (name.clone(), json!({ "task": 7 })));
        assert_eq!(other.next().await.unwrap(), returned);
        let second = ask(&*store, &cluster, "j", "l", json!(2)).await.unwrap();
        assert_eq!(one.next().await.unwrap(), (second, json!(2)), "the first one is not returned again");
        answer(&*store, &cluster, "j", &name, json!("it waits")).await.unwrap();
        assert_eq!(answered(&*store, &cluster, "j", &name).await.unwrap(), "it waits");
        assert_eq!(store.children(&cluster.job("j").questions()).await.unwrap().len(), 1);
        // The caller no longer waits.
        answer(&*store, &cluster, "j", &name, json!("it waits")).await.unwrap();
    }

    #[tokio::test]
    async fn oversized_or_excess_question_is_refused() {
        let (store, cluster) = job().await;
        let large = json!("x".repeat(ANSWER_BYTES_MAX));
        let refused = ask(&*store, &cluster, "j", "k", large.clone()).await;
        assert!(matches!(refused, Err(Error::TooLarge { .. })));
        let name = ask(&*store, &cluster, "j", "k", json!(1)).await.unwrap();
        let refused = answer(&*store, &cluster, "j", &name, large).await;
        assert!(matches!(refused, Err(Error::TooLarge { .. })));
        for key in 1..QUESTIONS_MAX {
            ask(&*store, &cluster, "j", &key.to_string(), json!(1)).await.unwrap();
        }
        let refused = ask(&*store, &cluster, "j", "x", json!(1)).await;
        assert!(matches!(refused, Err(Error::TooMany { .. })));
        assert!(matches!(ask(&*store, &cluster, "i", "x", json!(1)).await, Err(Error::NoNode { .. })));
    }
}
