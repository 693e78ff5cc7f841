//! Scaling: election of the controller that decides how many machines a cluster has, and its state.
//!
//! ```text
//! scale              the state of the controller; its version is the fence
//!   controller       ephemeral: the name of the controller
//!   said             its recent decisions, for users
//! ```
//!
//! One controller holds the *office*. To take it, a controller sets the unchanged state, which increments its
//! version: later writes of an earlier controller are refused, however late they arrive, and its earlier
//! writes are visible. The ephemeral znode only shows that the office is held: no decision depends on it.
//!
//! A controller writes each action **before** it executes it. It may still execute it after it was replaced,
//! so actions must be idempotent.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    record,
    store::{CreateMode, OneShot, Op, OpAnswer, Store, Version},
};

/// The maximum size of the controller's state and report, in bytes: both are written by one request.
pub const SCALING_BYTES_MAX: usize = 900 << 10;

/// The number of times that the office may change hands while a controller tries to take it.
const TAKES_MAX: usize = 16;

/// The office of the controller, held by this session.
pub struct Office {
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    version: Version,
    /// The content of the ephemeral znode created by this controller.
    mine: Vec<u8>,
}

/// The outcome of standing for the office.
#[must_use]
pub enum Standing {
    /// The office was taken, with the state of the last controller; `None` if there was none.
    Taken(Office, Option<Vec<u8>>),
    /// Another controller holds it.
    HeldBy {
        /// The name of that controller.
        holder: String,
        /// Resolves when that may have changed.
        changed: OneShot,
    },
}

#[derive(Serialize, Deserialize)]
struct Holder {
    holder: String,
}

/// Stands for the office. The name identifies the controller to users, and must be unique among controllers.
///
/// # Errors
/// Any error from the store. It can be called again: an office that was taken by an earlier call, even in an
/// earlier session, is taken again.
pub async fn stand(store: Arc<dyn Store>, cluster: &ClusterPaths, name: &str) -> Result<Standing> {
    cluster.prepare(&*store).await?;
    ensure(&*store, &cluster.scale()).await?;
    store.check_access(&cluster.scale()).await?;
    let path = cluster.scale_controller();
    let mine = record::write(&Holder { holder: name.to_owned() });
    for _ in 0..TAKES_MAX {
        match store.create(&path, &mine, CreateMode::Ephemeral).await {
            Ok(_) => match take(Arc::clone(&store), cluster, &mine).await {
                // An earlier controller has just written; the next try finds the znode created by this one.
                Err(Error::BadVersion { .. }) => {}
                other => return other,
            },
            Err(Error::NodeExists { .. }) => match store.get_and_watch(&path).await {
                // It belongs to this controller, possibly in a session that will expire.
                Ok((content, stat, _)) if content == mine => delete(&*store, &path, stat.version).await?,
                Ok((content, _, changed)) => {
                    let unreadable = || "a controller with an unreadable name".to_owned();
                    let holder =
                        record::read::<Holder>(&path, &content).map_or_else(|_| unreadable(), |it| it.holder);
                    return Ok(Standing::HeldBy { holder, changed });
                }
                Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
    Err(Error::Contended { path, tries: TAKES_MAX })
}

/// Takes the office: all writes of earlier controllers fail from now on.
async fn take(store: Arc<dyn Store>, cluster: &ClusterPaths, mine: &[u8]) -> Result<Standing> {
    ensure(&*store, &cluster.scale_said()).await?;
    store.sync(&cluster.scale()).await?;
    let (content, stat) = store.get(&cluster.scale()).await?;
    let version = store.set(&cluster.scale(), &content, Some(stat.version)).await?;
    let office = Office { store, cluster: cluster.clone(), version, mine: mine.to_vec() };
    Ok(Standing::Taken(office, (!content.is_empty()).then_some(content)))
}

async fn ensure(store: &dyn Store, path: &str) -> Result<()> {
    match store.create(path, b"", CreateMode::Persistent).await {
        Ok(_) | Err(Error::NodeExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn delete(store: &dyn Store, path: &str, version: Version) -> Result<()> {
    match store.delete(path, Some(version)).await {
        Ok(()) | Err(Error::NoNode { .. } | Error::BadVersion { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Office {
    /// Writes the controller's state, and its report to users.
    ///
    /// # Errors
    /// Any error from the store; [`Error::BadVersion`] in a multi if another controller has taken the office.
    /// After any error except [`Error::TooLarge`] the office must be taken again: the state in the store is
    /// then the valid one.
    pub async fn write(&mut self, state: &[u8], said: &[u8]) -> Result<()> {
        let path = self.cluster.scale();
        let size = state.len() + said.len();
        if size > SCALING_BYTES_MAX {
            return Err(Error::TooLarge { path, size, limit: SCALING_BYTES_MAX });
        }
        let set = |path: String, data: &[u8], version| Op::Set { path, data: data.to_vec(), version };
        let answers = self
            .store
            .multi(vec![set(path, state, Some(self.version)), set(self.cluster.scale_said(), said, None)])
            .await?;
        if let Some(OpAnswer::Set(version)) = answers.first() {
            self.version = *version;
        }
        Ok(())
    }

    /// Gives up the office, so that another controller need not wait for the end of the session.
    ///
    /// # Errors
    /// Any error from the store.
    pub async fn give_up(&self) -> Result<()> {
        let path = self.cluster.scale_controller();
        match self.store.get(&path).await {
            Ok((content, stat)) if content == self.mine => delete(&*self.store, &path, stat.version).await,
            // It belongs to another controller, which now holds the office.
            Ok(_) | Err(Error::NoNode { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The public report of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The name of the controller; `None` if there is none.
    pub holder: Option<String>,
    /// The state of the controller; empty if there is none yet.
    pub state: Vec<u8>,
    /// Its last report.
    pub said: Vec<u8>,
    /// The time of that report, in milliseconds since 1970 by the server's clock.
    pub at_ms: u64,
}

/// Reads the last report of the controller of a cluster. `None` if there never was a controller.
///
/// # Errors
/// Any error from the store.
pub async fn said(store: &dyn Store, cluster: &ClusterPaths) -> Result<Option<Said>> {
    let paths = [cluster.scale_controller(), cluster.scale(), cluster.scale_said()];
    let [holder, state, said] = paths.each_ref().map(|path| store.get(path));
    let absent = |answer: Result<_>| match answer {
        Err(Error::NoNode { .. }) => Ok(None),
        other => other.map(Some),
    };
    let (holder, state, said) = (absent(holder.await)?, absent(state.await)?, absent(said.await)?);
    let holder = holder.and_then(|(content, _)| record::read::<Holder>(&paths[0], &content).ok());
    Ok(state.zip(said).map(|((state, _), (said, stat))| Said {
        holder: holder.map(|it| it.holder),
        state,
        said,
        at_ms: stat.modified_ms,
    }))
}

impl fmt::Debug for Office {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Office").field("version", &self.version).finish_non_exhaustive()
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(office, state) => f.debug_tuple("Taken").field(office).field(state).finish(),
            Self::HeldBy { holder, .. } => {
                f.debug_struct("HeldBy").field("holder", holder).finish_non_exhaustive()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fate, Faults, MemoryStore, MemoryTree, testing::FATES, tree::SessionId};

    fn cluster() -> ClusterPaths {
        ClusterPaths::new("test").unwrap()
    }

    async fn taken(store: &Arc<MemoryStore>, name: &str) -> (Office, Option<Vec<u8>>) {
        match stand(Arc::<MemoryStore>::clone(store), &cluster(), name).await.unwrap() {
            Standing::Taken(office, state) => (office, state),
            other @ Standing::HeldBy { .. } => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn next_controller_continues_from_written_state() {
        let tree = MemoryTree::new();
        let (one, other) = (tree.connect(), tree.connect());
        assert_eq!(said(&*other, &cluster()).await.unwrap(), None);
        let (mut office, state) = taken(&one, "one").await;
        assert_eq!(state, None);
        office.write(b"first", b"up").await.unwrap();
        office.write(b"second", b"down").await.unwrap();
        let standing = stand(Arc::<MemoryStore>::clone(&other), &cluster(), "other").await.unwrap();
        let Standing::HeldBy { holder, changed } = standing else { panic!("{standing:?}") };
        assert_eq!(holder, "one");
        tree.expire(one.id());
        changed.await;
        let (_, state) = taken(&other, "other").await;
        assert_eq!(state.as_deref(), Some(&b"second"[..]));
        let read = said(&*other, &cluster()).await.unwrap().unwrap();
        assert_eq!((read.holder.as_deref(), &read.said[..]), (Some("other"), &b"down"[..]));
    }

    #[tokio::test]
    async fn write_of_replaced_controller_is_refused() {
        let tree = MemoryTree::new();
        let (one, other) = (tree.connect(), tree.connect());
        let (mut before, _) = taken(&one, "one").await;
        // Its session continues, but its ephemeral znode is gone.
        before.give_up().await.unwrap();
        let (mut after, _) = taken(&other, "other").await;
        let refused = before.write(b"late", b"").await.unwrap_err();
        assert!(matches!(refused, Error::Multi { .. }), "{refused}");
        after.write(b"new", b"").await.unwrap();
        // It ends later, and the ephemeral znode is not its own.
        before.give_up().await.unwrap();
        let told = said(&*one, &cluster()).await.unwrap().unwrap();
        assert_eq!(told.holder.as_deref(), Some("other"));
        assert_eq!(said(&*one, &cluster()).await.unwrap().unwrap().state, b"new");
        let large = after.write(&vec![0; SCALING_BYTES_MAX], b"x").await.unwrap_err();
        assert!(matches!(large, Error::TooLarge { .. }), "{large}");
    }

    /// Loses the answer to one request of a session.
    struct LoseNth(SessionId, usize, Fate);

    impl Faults for LoseNth {
        fn judge(&mut self, session: SessionId, _: &'static str, _: &str) -> Fate {
            if session != self.0 {
                return Fate::Answered;
            }
            self.1 = self.1.wrapping_sub(1);
            if self.1 == 0 { self.2 } else { Fate::Answered }
        }
    }

    #[tokio::test]
    async fn office_with_any_answer_lost_keeps_its_state() {
        for fate in FATES {
            for nth in 1..40 {
                let tree = MemoryTree::new();
                let store = tree.connect();
                tree.set_faults(LoseNth(store.id(), nth, fate));
                let mut wrote = 0_u8;
                for _ in 0..4 {
                    let standing = stand(Arc::<MemoryStore>::clone(&store), &cluster(), "one").await;
                    let Ok(Standing::Taken(mut office, state)) = standing else { continue };
                    let known = state.map_or(0, |state| state[0]);
                    assert!(known == wrote || known == wrote + 1, "{fate:?} {nth}: {known} after {wrote}");
                    wrote = known + 1;
                    if office.write(&[wrote], b"").await.is_err() {
                        wrote -= 1;
                    }
                }
                assert!(wrote >= 2, "{fate:?} {nth}: the office was not taken again");
            }
        }
    }
}
