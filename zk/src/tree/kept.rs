//! What of a tree outlives its process, and what of an operation has to be written down for that.
//!
//! Persistent znodes are kept, with their data, their version and the number of their next sequential child.
//! Everything else belongs to sessions, which end with the process: ephemerals, watches. The number counts
//! ephemeral children too, so that no name is given twice.

use std::collections::BTreeMap;

use super::{Done, Fired, SessionId, Tree, Znode, check_path, check_size, name_of, op_bytes, parent_of};
use crate::{
    error::{Error, Result},
    store::{Op, OpAnswer, Version},
};

/// Keeps the changes of a tree beyond its process.
pub(crate) trait Keeper: Send {
    /// Keeps all of these changes, or fails: then they are undone, and nothing further is asked of it.
    fn keep(&mut self, changes: &[Change<'_>]) -> Result<()>;
}

/// A change to a znode that is kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// It is there, with this content.
    Put(Kept<'a>),
    /// It is gone.
    Remove(&'a str),
}

/// A znode as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    pub(crate) path: &'a str,
    pub(crate) version: Version,
    pub(crate) next_number: u32,
    pub(crate) data: &'a [u8],
}

impl Tree {
    /// As [`apply`](Self::apply); the keeper is told before the change counts.
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

    /// As [`multi`](Self::multi); the keeper is told before the changes count.
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

    /// Lets completed operations count, once the keeper has them; undoes them if it cannot keep them.
    fn settle(
        &mut self,
        all_done: Vec<Done>,
        fired: &mut Fired,
        keeper: Option<&mut dyn Keeper>,
    ) -> Result<()> {
        if let Some(keeper) = keeper
            && let Err(error) = self.tell(keeper, &all_done)
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

    /// Adds a znode that was kept of another tree, to a tree without sessions. Parents come before their
    /// children.
    ///
    /// # Errors
    /// With the reason, if no tree has such a znode.
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

    /// Tells the keeper what completed operations have changed, if that concerns it.
    fn tell(&self, keeper: &mut dyn Keeper, all_done: &[Done]) -> Result<()> {
        let changes = self.changes(all_done);
        if changes.is_empty() { Ok(()) } else { keeper.keep(&changes) }
    }

    /// Returns the changes to znodes that are kept, each znode once, in the order of their paths.
    fn changes<'a>(&'a self, all_done: &'a [Done]) -> Vec<Change<'a>> {
        let mut changes = BTreeMap::new();
        for done in all_done {
            match done {
                Done::Created { path } => {
                    self.note(path, false, &mut changes);
                    // It has counted the child.
                    self.note(parent_of(path), false, &mut changes);
                }
                Done::Set { path, .. } => self.note(path, false, &mut changes),
                Done::Deleted { path, node } => self.note(path, node.owner == 0, &mut changes),
                Done::Checked => {}
            }
        }
        changes.into_values().collect()
    }

    /// Notes what a znode is after all operations; `was_kept` if one of them has deleted it as one that is
    /// kept.
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

    /// Writes down what it is told, or refuses it.
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

    /// A tree with `/a`, its session, and what watches have fired.
    fn with_a() -> (Tree, SessionId, Fired) {
        let mut tree = Tree::new();
        let (session, mut fired) = (tree.open_session(), Fired::new());
        tree.apply(session, &create("/a", PERSISTENT), &mut fired).unwrap();
        (tree, session, fired)
    }

    #[test]
    fn what_is_kept_is_what_persists_and_the_numbers_of_all_children() {
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
    fn what_is_restored_continues_as_the_original() {
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
    async fn what_cannot_be_kept_is_undone_and_the_tree_answers_nothing_more() {
        let (before, ..) = with_a();
        let tree = MemoryTree::kept(before, Notes { refuses: true, ..Notes::default() });
        let (one, other) = (tree.connect(), tree.connect());
        let (_, changed) = other.exists_and_watch("/a/x").await.unwrap();
        assert_eq!(tree.failure(), None);
        let failed =
            one.multi(vec![create("/a/x", PERSISTENT), delete("/a/x"), set("/a")]).await.unwrap_err();
        assert!(failed.to_string().starts_with("notes cannot be written: full."), "{failed}");
        assert_eq!(tree.failure(), Some(failed.clone()));
        assert_eq!(changed.await, WatchEvent::Ended, "the observer hears of nothing that is not kept");
        assert_eq!(*other.session().borrow(), Session::Expired);
        for store in [one, other, tree.connect()] {
            assert_eq!(store.get("/a").await, Err(failed.clone()));
            assert_eq!(store.set("/a", b"", None).await, Err(failed.clone()));
            assert_eq!(store.sync("/").await, Err(failed.clone()));
            assert_eq!(*store.session().borrow(), Session::Expired);
        }
    }

    #[test]
    fn operations_that_cannot_be_kept_leave_the_tree_as_it_was() {
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
