//! The durable part of a tree, and the changes of each operation to it.
//!
//! Persistent znodes are durable, with their data, their version and the number of their next sequential
//! child. Ephemerals and watches belong to sessions, which end with the process. The number counts ephemeral
//! children too, so that no name is used twice.

use std::collections::BTreeMap;

use super::{Done, Fired, SessionId, Tree, Znode, check_path, check_size, name_of, op_bytes, parent_of};
use crate::{
    error::{Error, Result},
    store::{Op, OpAnswer, Version},
};

/// Saves the changes of a tree beyond its process.
pub(crate) trait Keeper: Send {
    /// Saves all of these changes, or fails. After a failure they are undone, and it is not called again.
    fn keep(&mut self, changes: &[Change<'_>]) -> Result<()>;
}

/// A change of a durable znode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// The znode exists, with this content.
    Put(Kept<'a>),
    /// The znode was removed.
    Remove(&'a str),
}

/// The durable part of a znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    pub(crate) path: &'a str,
    pub(crate) version: Version,
    pub(crate) next_number: u32,
    pub(crate) data: &'a [u8],
}

impl Tree {
    /// As [`apply`](Self::apply); the keeper saves the change before it takes effect.
    pub(crate) fn apply_kept(
        &mut self,
        session: SessionId,
        op: &Op,
        fired: &mut Fired,
        keeper: Option<&mut dyn Keeper>,
    ) -> Result<OpAnswer> {
        self.check_session(session)?;
        check_size(op.path(), op_bytes(op))?;
        let (done, answer) = self.perform(session, op)?;
        self.settle(vec![done], fired, keeper)?;
        Ok(answer)
    }

    /// As [`multi`](Self::multi); the keeper saves the changes before they take effect.
    pub(crate) fn multi_kept(
        &mut self,
        session: SessionId,
        ops: &[Op],
        fired: &mut Fired,
        keeper: Option<&mut dyn Keeper>,
    ) -> Result<Vec<OpAnswer>> {
        self.check_session(session)?;
        let first = ops.first().map_or("/", Op::path);
        check_size(first, ops.iter().map(op_bytes).sum())?;
        let (mut all_done, mut answers) = (Vec::new(), Vec::new());
        for (index, op) in ops.iter().enumerate() {
            match self.perform(session, op) {
                Ok((done, answer)) => {
                    all_done.push(done);
                    answers.push(answer);
                }
                Err(cause) => {
                    self.undo_all(all_done);
                    return Err(Error::Multi { index, cause: Box::new(cause) });
                }
            }
        }
        self.settle(all_done, fired, keeper)?;
        Ok(answers)
    }

    /// Makes completed operations effective once the keeper has saved them, and undoes them if that fails.
    fn settle(
        &mut self,
        all_done: Vec<Done>,
        fired: &mut Fired,
        keeper: Option<&mut dyn Keeper>,
    ) -> Result<()> {
        if let Some(keeper) = keeper
            && let Err(error) = self.save(keeper, &all_done)
        {
            self.undo_all(all_done);
            return Err(error);
        }
        for done in &all_done {
            self.fire(done, fired);
        }
        Ok(())
    }

    fn undo_all(&mut self, all_done: Vec<Done>) {
        all_done.into_iter().rev().for_each(|done| self.undo(done));
    }

    /// Adds a saved znode of another tree, to a tree without sessions. Parents come before their children.
    ///
    /// # Errors
    /// Returns the reason if no tree can contain such a znode.
    pub(crate) fn restore(&mut self, kept: Kept<'_>) -> std::result::Result<(), String> {
        let Kept { path, version, next_number, data } = kept;
        check_path(path).map_err(|error| error.to_string())?;
        let mut node = Znode { data: data.to_vec(), version, next_number, ..Znode::default() };
        if path == "/" {
            node.children = std::mem::take(&mut self.nodes.entry(path.to_owned()).or_default().children);
        } else {
            let parent = self.nodes.get_mut(parent_of(path));
            let parent = parent.ok_or_else(|| format!("the znode {path} has no parent"))?;
            parent.children.insert(name_of(path).to_owned());
        }
        self.nodes.insert(path.to_owned(), node);
        Ok(())
    }

    /// Passes the durable changes of completed operations, if any, to the keeper.
    fn save(&self, keeper: &mut dyn Keeper, all_done: &[Done]) -> Result<()> {
        let changes = self.changes(all_done);
        if changes.is_empty() { Ok(()) } else { keeper.keep(&changes) }
    }

    /// Returns the changes of durable znodes, each znode once, in the order of their paths.
    fn changes<'a>(&'a self, all_done: &'a [Done]) -> Vec<Change<'a>> {
        let mut changes = BTreeMap::new();
        for done in all_done {
            match done {
                Done::Created { path } => {
                    self.note(path, false, &mut changes);
                    // The parent has counted the child.
                    self.note(parent_of(path), false, &mut changes);
                }
                Done::Set { path, .. } => self.note(path, false, &mut changes),
                Done::Deleted { path, node } => self.note(path, node.owner == 0, &mut changes),
                Done::Checked => {}
            }
        }
        changes.into_values().collect()
    }

    /// Records the state of a znode after all operations; `was_kept` if one of them has deleted it while it
    /// was durable.
    fn note<'a>(&'a self, path: &'a str, was_kept: bool, changes: &mut BTreeMap<&'a str, Change<'a>>) {
        match self.nodes.get(path) {
            Some(Znode { data, version, owner: 0, next_number, .. }) => {
                let (version, next_number) = (*version, *next_number);
                changes.insert(path, Change::Put(Kept { path, version, next_number, data }));
            }
            _ if was_kept => {
                changes.insert(path, Change::Remove(path));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateMode, MemoryTree, Session, Store as _, WatchEvent};

    /// Records the changes, or refuses them.
    #[derive(Default)]
    struct Notes {
        told: Vec<String>,
        refuses: bool,
    }

    impl Keeper for Notes {
        fn keep(&mut self, changes: &[Change<'_>]) -> Result<()> {
            if self.refuses {
                return Err(Error::NotKept { file: "notes".to_owned(), reason: "full".to_owned() });
            }
            let told = changes.iter().map(|change| match change {
                Change::Put(Kept { path, version, next_number, .. }) => {
                    format!("{path} {version} {next_number}")
                }
                Change::Remove(path) => format!("{path} gone"),
            });
            self.told = told.collect();
            Ok(())
        }
    }

    fn create(path: &str, mode: CreateMode) -> Op {
        Op::Create { path: path.to_owned(), data: vec![], mode }
    }

    fn set(path: &str) -> Op {
        Op::Set { path: path.to_owned(), data: vec![1], version: None }
    }

    fn delete(path: &str) -> Op {
        Op::Delete { path: path.to_owned(), version: None }
    }

    const PERSISTENT: CreateMode = CreateMode::Persistent;

    /// A tree with `/a`, its session, and the watches that have fired.
    fn with_a() -> (Tree, SessionId, Fired) {
        let mut tree = Tree::new();
        let (session, mut fired) = (tree.open_session(), Fired::new());
        tree.apply(session, &create("/a", PERSISTENT), &mut fired).unwrap();
        (tree, session, fired)
    }

    #[test]
    fn keeper_saves_persistent_znodes_and_child_numbers() {
        let (mut tree, session, mut fired) = with_a();
        let mut told = |ops: &[Op]| {
            let mut notes = Notes::default();
            tree.multi_kept(session, ops, &mut fired, Some(&mut notes)).unwrap();
            notes.told
        };
        assert_eq!(told(&[create("/a/x", PERSISTENT), set("/a/x"), set("/a/x")]), ["/a 0 1", "/a/x 2 0"]);
        assert_eq!(told(&[create("/a/n-", CreateMode::EphemeralSequential)]), ["/a 0 2"]);
        assert_eq!(told(&[set("/a/n-0000000001")]), [""; 0]);
        assert_eq!(told(&[delete("/a/n-0000000001")]), [""; 0]);
        assert_eq!(told(&[Op::Check { path: "/a".to_owned(), version: None }]), [""; 0]);
        assert_eq!(told(&[delete("/a/x"), create("/a/x", CreateMode::Ephemeral)]), ["/a 0 3", "/a/x gone"]);
        assert_eq!(told(&[delete("/a/x"), create("/a/x", PERSISTENT)]), ["/a 0 4", "/a/x 0 0"]);
        assert_eq!(told(&[create("/a/y", PERSISTENT), delete("/a/y")]), ["/a 0 5", "/a/y gone"]);
    }

    #[test]
    fn restored_tree_continues_as_the_original() {
        let (mut tree, session, mut fired) = with_a();
        for op in [set("/a"), create("/a/n-", CreateMode::PersistentSequential), delete("/a/n-0000000000")] {
            tree.apply(session, &op, &mut fired).unwrap();
        }
        let mut restored = Tree::new();
        for (path, node) in &tree.nodes {
            let Znode { data, version, next_number, .. } = node;
            restored.restore(Kept { path, version: *version, next_number: *next_number, data }).unwrap();
        }
        let session = restored.open_session();
        let (data, stat) = restored.get(session, "/a").unwrap();
        assert_eq!((data, stat.version, stat.children), (vec![1], 1, 0));
        let next = create("/a/n-", CreateMode::PersistentSequential);
        restored.apply(session, &next, &mut fired).unwrap();
        assert_eq!(restored.children(session, "/a").unwrap(), ["n-0000000001"]);
        let orphan = Kept { path: "/b/c", version: 0, next_number: 0, data: &[] };
        assert_eq!(restored.restore(orphan), Err("the znode /b/c has no parent".to_owned()));
    }

    #[tokio::test]
    async fn unsaved_change_is_undone_and_tree_rejects_requests() {
        let (before, ..) = with_a();
        let tree = MemoryTree::kept(before, Notes { refuses: true, ..Notes::default() });
        let (one, other) = (tree.connect(), tree.connect());
        let (_, changed) = other.exists_and_watch("/a/x").await.unwrap();
        assert_eq!(tree.failure(), None);
        let failed =
            one.multi(vec![create("/a/x", PERSISTENT), delete("/a/x"), set("/a")]).await.unwrap_err();
        assert!(failed.to_string().starts_with("notes cannot be written: full."), "{failed}");
        assert_eq!(tree.failure(), Some(failed.clone()));
        assert_eq!(changed.await, WatchEvent::Ended, "the observer is not notified of unsaved changes");
        assert_eq!(*other.session().borrow(), Session::Expired);
        for store in [one, other, tree.connect()] {
            assert_eq!(store.get("/a").await, Err(failed.clone()));
            assert_eq!(store.set("/a", b"", None).await, Err(failed.clone()));
            assert_eq!(store.sync("/").await, Err(failed.clone()));
            assert_eq!(*store.session().borrow(), Session::Expired);
        }
    }

    #[test]
    fn unsaved_operations_leave_tree_unchanged() {
        let (mut tree, session, mut fired) = with_a();
        tree.watch_tree("/");
        let mut notes = Notes { refuses: true, ..Notes::default() };
        let before = format!("{tree:?}");
        let ops = [create("/a/n-", CreateMode::PersistentSequential), set("/a"), create("/b", PERSISTENT)];
        tree.multi_kept(session, &ops, &mut fired, Some(&mut notes)).unwrap_err();
        tree.apply_kept(session, &delete("/a"), &mut fired, Some(&mut notes)).unwrap_err();
        assert_eq!(format!("{tree:?}"), before);
        assert!(fired.is_empty());
    }
}
