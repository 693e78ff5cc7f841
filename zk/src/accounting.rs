//! accounting
use crate::{
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths},
    store::{CreateMode, Op, Store, WatchEvent},
};
/// e
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CommitError {
    #[error("not a member")]
    NotMember,
    #[error("attempt over")]
    AttemptOver,
    #[error(transparent)]
    Store(#[from] Error),
}
/// t
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Transaction {
    pub node: String,
    pub txn: String,
    pub settled: Option<String>,
    pub toggles: Vec<String>,
    pub output: Option<Vec<u8>>,
    pub park: Vec<(String, Vec<u8>)>,
    pub leave: bool,
}
/// c
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Claim {
    pub node: String,
    pub txn: String,
    pub settled: Option<String>,
    pub task: String,
}
/// d
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Committed {
    pub rebuilds: u32,
    pub reads: u32,
}
fn create(path: String, data: Vec<u8>) -> Op {
    Op::Create { path, data, mode: CreateMode::Persistent }
}
/// c
pub async fn commit(
    s: &dyn Store,
    c: &ClusterPaths,
    a: &AttemptPaths,
    t: &Transaction,
) -> std::result::Result<Committed, CommitError> {
    let mut done = Committed::default();
    for _ in 0..1000 {
        let mut reads = Vec::new();
        for id in &t.toggles {
            reads.push(s.exists(&a.task(id)));
            done.reads += 1;
        }
        let settled = match &t.settled {
            Some(x) => s.exists(&a.txn(x)).await?.is_some(),
            None => false,
        };
        let mut ops = vec![
            create(a.txn(&t.txn), vec![]),
            Op::Check { path: c.member(&t.node), version: None },
            Op::Check { path: a.base(), version: None },
        ];
        if settled {
            ops.push(Op::Delete { path: a.txn(t.settled.as_ref().unwrap()), version: None });
        }
        for (id, r) in t.toggles.iter().zip(reads) {
            ops.push(if r.await?.is_some() {
                Op::Delete { path: a.task(id), version: None }
            } else {
                create(a.task(id), vec![])
            });
        }
        if let Some(o) = &t.output {
            ops.push(Op::Set { path: a.output(&t.node), data: o.clone(), version: None });
        }
        for (id, e) in &t.park {
            ops.push(create(a.parked_task(id), e.clone()));
        }
        if t.leave {
            ops.push(create(a.left_node(&t.node), vec![]));
            ops.push(Op::Delete { path: c.member(&t.node), version: None });
        }
        match s.multi(ops).await {
            Ok(_) => return Ok(done),
            Err(Error::Multi { index: 0, source }) if matches!(*source, Error::NodeExists { .. }) => {
                return Ok(done);
            }
            Err(Error::Multi { index: 0 | 2, .. }) => return Err(CommitError::AttemptOver),
            Err(Error::Multi { index: 1, .. }) => return Err(CommitError::NotMember),
            Err(Error::Multi { .. }) => {
                done.rebuilds += 1;
                s.sync(&a.base()).await?;
            }
            Err(e) => return Err(e.into()),
        }
    }
    Err(CommitError::Store(Error::TimedOut { waited_ms: 0 }))
}
/// c
pub async fn claim(
    s: &dyn Store,
    c: &ClusterPaths,
    a: &AttemptPaths,
    t: &Claim,
) -> std::result::Result<Option<Vec<u8>>, CommitError> {
    if let Ok((d, _)) = s.get(&a.txn(&t.txn)).await {
        return Ok(Some(d));
    }
    let data = match s.get(&a.parked_task(&t.task)).await {
        Ok((d, _)) => d,
        Err(Error::NoNode { .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let mut ops = vec![
        create(a.txn(&t.txn), data.clone()),
        Op::Check { path: c.member(&t.node), version: None },
        Op::Delete { path: a.parked_task(&t.task), version: None },
    ];
    if let Some(x) = &t.settled {
        if s.exists(&a.txn(x)).await?.is_some() {
            ops.push(Op::Delete { path: a.txn(x), version: None });
        }
    }
    match s.multi(ops).await {
        Ok(_) => Ok(Some(data)),
        Err(Error::Multi { index: 1, .. }) => Err(CommitError::NotMember),
        Err(Error::Multi { index: 2, .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
/// e
pub async fn enrol(
    s: &dyn Store,
    c: &ClusterPaths,
    a: &AttemptPaths,
    node: &str,
) -> std::result::Result<(), CommitError> {
    match s
        .multi(vec![
            Op::Check { path: c.member(node), version: None },
            Op::Check { path: a.base(), version: None },
            create(a.output(node), vec![]),
        ])
        .await
    {
        Ok(_) => Ok(()),
        Err(Error::Multi { index: 0, .. }) => Err(CommitError::NotMember),
        Err(Error::Multi { index: 1, .. }) => Err(CommitError::AttemptOver),
        Err(Error::Multi { index: 2, .. }) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
/// l
pub async fn left_cleanly(s: &dyn Store, a: &AttemptPaths, node: &str) -> Result<bool> {
    Ok(s.exists(&a.left_node(node)).await?.is_some())
}
/// w
pub async fn wait_until_empty(s: &dyn Store, a: &AttemptPaths) -> Result<()> {
    loop {
        let (n, w) = s.children_and_watch(&a.list()).await?;
        if n.is_empty() {
            return Ok(());
        }
        if w.await == WatchEvent::Ended {
            return Err(Error::SessionExpired);
        }
    }
}
