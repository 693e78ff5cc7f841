//! Scaling: which controller decides how many machines a cluster has, and what it remembers.
//!
//! ```text
//! scale              what the controller remembers; its version is the fence
//!   controller       ephemeral: who holds the office
//!   said             what it has decided lately, for people
//! ```
//!
//! One controller holds the *office*. Whoever takes it sets the state as it stands, which changes its version: what
//! an earlier controller still writes is refused, however late it arrives, and everything that it wrote before is
//! seen. The ephemeral znode is only the sign that the office is held: nothing is decided by it.
//!
//! A controller writes what it is about to do **before** it does it. It may still do so after it was replaced, so
//! what it does must be such that another one may do the same again.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    paths::ClusterPaths,
    record,
    store::{CreateMode, OneShot, Op, OpAnswer, Store, Version},
};

/// The maximum size of what a controller remembers and says, in bytes: both go in one request.
pub const SCALING_BYTES_MAX: usize = 900 << 10;

/// How often the office may change hands while somebody tries to take it.
const TAKES_MAX: usize = 16;

/// The office of the controller, held by this session.
pub struct Office {
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    version: Version,
    /// The sign that it is held, as this controller has put it up.
    mine: Vec<u8>,
}

/// What has come of standing for the office.
#[must_use]
pub enum Standing {
    /// It is held now. With what the last controller remembered; `None` if there was none.
    Taken(Office, Option<Vec<u8>>),
    /// Somebody else holds it.
    HeldBy {
        /// Who it is.
        holder: String,
        /// Resolves when that may have changed.
        changed: OneShot,
    },
}

#[derive(Serialize, Deserialize)]
struct Holder {
    holder: String,
}

/// Stands for the office. The name says to people who it is, and differs from that of every other controller.
///
/// # Errors
/// Any error from the store. It may be called again: an office that an earlier call took, also in an earlier
/// session, is taken anew.
pub async fn stand(store: Arc<dyn Store>, cluster: &ClusterPaths, name: &str) -> Result<Standing> {
    cluster.prepare(&*store).await?;
    ensure(&*store, &cluster.scale()).await?;
    store.check_access(&cluster.scale()).await?;
    let path = cluster.scale_controller();
    let mine = record::write(&Holder { holder: name.to_owned() });
    for _ in 0..TAKES_MAX {
        match store.create(&path, &mine, CreateMode::Ephemeral).await {
            Ok(_) => match take(Arc::clone(&store), cluster, &mine).await {
                // An earlier controller has written just now; the next try finds what this one has created.
                Err(Error::BadVersion { .. }) => {}
                other => return other,
            },
            Err(Error::NodeExists { .. }) => match store.get_and_watch(&path).await {
                // It is this controller's, maybe of a session that will expire.
                Ok((content, stat, _)) if content == mine => delete(&*store, &path, stat.version).await?,
                Ok((content, _, changed)) => {
                    let unreadable = || "somebody who cannot be read".to_owned();
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

/// Makes every earlier controller's writes fail.
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
    /// Writes what the controller remembers, and what it says to people.
    ///
    /// # Errors
    /// Any error from the store; [`Error::BadVersion`] in a multi if another controller has taken the office. After
    /// any error but [`Error::TooLarge`] the office has to be taken again: what stands there then is what counts.
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

    /// Gives the office up, so that another controller need not wait for the end of the session.
    ///
    /// # Errors
    /// Any error from the store.
    pub async fn give_up(&self) -> Result<()> {
        let path = self.cluster.scale_controller();
        match self.store.get(&path).await {
            Ok((content, stat)) if content == self.mine => delete(&*self.store, &path, stat.version).await,
            // Somebody else's, who holds the office by now.
            Ok(_) | Err(Error::NoNode { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What people can read of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Who holds the office; `None` if nobody does.
    pub holder: Option<String>,
    /// What the controller remembers; empty if there was none yet.
    pub state: Vec<u8>,
    /// What it has said last.
    pub said: Vec<u8>,
    /// When that was, in milliseconds since 1970 by the server's clock.
    pub at_ms: u64,
}

/// Reads what the controller of a cluster has said last. `None` if there never was one.
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
    async fn one_controller_holds_the_office_and_the_next_goes_on_from_what_it_wrote() {
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
    async fn what_a_controller_writes_after_it_was_replaced_is_refused() {
        let tree = MemoryTree::new();
        let (one, other) = (tree.connect(), tree.connect());
        let (mut before, _) = taken(&one, "one").await;
        // Its session goes on, but the sign that it holds the office is gone.
        before.give_up().await.unwrap();
        let (mut after, _) = taken(&other, "other").await;
        let refused = before.write(b"late", b"").await.unwrap_err();
        assert!(matches!(refused, Error::Multi { .. }), "{refused}");
        after.write(b"new", b"").await.unwrap();
        // It ends later, and the sign that stands there is not its own.
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
    async fn a_lost_answer_costs_nothing() {
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
