//! The state of an [observation](super::observe): the znodes that it has read, and those that it has to read.

use std::collections::{BTreeSet, VecDeque};

use zk::job::JobRecord;

use crate::view::{Place, Wanted, counted_folder};

/// A read request, by its path below the cluster's znode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// The content of a znode.
    Read(String),
    /// The number of children of a znode.
    Count(String),
    /// The names of the children of a znode.
    List(String),
}

/// The jobs of which the nodes' reports are read. The records of all jobs are always read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Scope {
    /// All jobs that are not over, and the latest ones.
    #[default]
    Current,
    /// This job.
    Job(String),
    /// No job.
    Records,
}

/// The pending reads and the known znodes.
#[derive(Debug, Default)]
pub(super) struct Reading {
    scope: Scope,
    queue: VecDeque<Work>,
    queued: BTreeSet<Work>,
    /// Folders whose children will be counted at the next tick.
    to_count: BTreeSet<String>,
    /// The known znodes of interest.
    known: BTreeSet<String>,
    /// The attempts that were completely listed since the watch was set.
    listed: BTreeSet<String>,
    latest: BTreeSet<String>,
    /// Whether the members will be listed after all pending reads.
    members_due: bool,
    /// Folders of nodes that have left, to be listed after the members.
    left_due: Vec<String>,
}

/// The children of a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    /// The children that no longer exist.
    pub(super) gone: Vec<String>,
    /// The new children whose name is their entire content.
    pub(super) named: Vec<String>,
}

/// The number of latest jobs whose nodes are read even if the jobs are over.
const LATEST_MAX: usize = 3;
/// The maximum number of observed znodes; further ones are ignored.
const KNOWN_MAX: usize = 400_000;

impl Reading {
    pub(super) fn of(scope: Scope) -> Self {
        Self { scope, ..Self::default() }
    }

    /// Starts to read everything.
    pub(super) fn begin(&mut self) {
        self.queue.clear();
        self.queued.clear();
        self.listed.clear();
        self.left_due.clear();
        for folder in ["election", "drain", "cordon", "jobs"] {
            self.push(Work::List(folder.to_owned()));
        }
        self.members_due = true;
    }

    /// Queues the reads that must follow all earlier ones. Returns whether there are any.
    ///
    /// A node becomes a member before it enrols, and ends its membership after it has left. So the members are read
    /// after the enrolled nodes, and the nodes that have left after the members. In any other order, a node that joins
    /// or leaves in between would seem to be lost.
    pub(super) fn advance(&mut self) -> bool {
        if std::mem::take(&mut self.members_due) {
            self.push(Work::List("members".to_owned()));
        } else {
            for folder in std::mem::take(&mut self.left_due) {
                self.push(Work::List(folder));
            }
        }
        self.has_work()
    }

    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Work> {
        let next = self.queue.pop_front()?;
        self.queued.remove(&next);
        Some(next)
    }

    /// Repeats a read that was not answered.
    pub(super) fn again(&mut self, work: Work) {
        self.push(work);
    }

    fn push(&mut self, work: Work) {
        if self.queued.insert(work.clone()) {
            self.queue.push_back(work);
        }
    }

    /// Queues the pending counts.
    pub(super) fn tick(&mut self) {
        for folder in std::mem::take(&mut self.to_count) {
            self.push(Work::Count(folder));
        }
    }

    /// Records that a znode was created or changed. Returns whether it is new and its name is its entire content.
    pub(super) fn changed(&mut self, path: &str) -> bool {
        self.count_around(path);
        let Some(place) = Place::of(path) else { return false };
        match place.wanted() {
            Wanted::Data => self.push(Work::Read(path.to_owned())),
            Wanted::Children => drop(self.to_count.insert(path.to_owned())),
            Wanted::Name => return self.learn(path),
        }
        false
    }

    /// Adds a known znode. Returns whether it is new.
    fn learn(&mut self, path: &str) -> bool {
        self.known.len() < KNOWN_MAX && self.known.insert(path.to_owned())
    }

    /// Records that a znode was read. Returns whether it is observed.
    pub(super) fn is_there(&mut self, path: &str) -> bool {
        self.learn(path) || self.known.contains(path)
    }

    /// Records that a znode is gone. Returns whether it was known.
    pub(super) fn gone(&mut self, path: &str) -> bool {
        self.count_around(path);
        self.to_count.remove(path);
        self.known.remove(path)
    }

    fn count_around(&mut self, path: &str) {
        if let Some(folder) = counted_folder(path) {
            self.to_count.insert(folder.to_owned());
        }
    }

    /// Records a job's record. If its nodes are in scope, queues their reports.
    pub(super) fn job(&mut self, path: &str, record: &JobRecord) {
        let Some(Place::Job { job }) = Place::of(path) else { return };
        let is_wanted = match &self.scope {
            Scope::Current => !record.state.is_over() || self.latest.contains(path),
            Scope::Job(wanted) => wanted == job,
            Scope::Records => false,
        };
        if !is_wanted {
            return;
        }
        let attempt = format!("{path}/attempts/{}", record.attempt);
        if !self.listed.insert(attempt.clone()) {
            return;
        }
        self.push(Work::List(format!("{path}/figures")));
        for folder in ["outputs", "quarantine"] {
            self.push(Work::List(format!("{attempt}/{folder}")));
        }
        self.left_due.push(format!("{attempt}/left"));
        for folder in ["list", "parked"] {
            self.push(Work::Count(format!("{attempt}/{folder}")));
        }
        self.push(Work::Read(format!("{attempt}/list/open")));
    }

    /// Records the children of a folder.
    pub(super) fn listed(&mut self, folder: &str, names: &[String]) -> Listed {
        let below = format!("{folder}/");
        let is_quarantine = folder.ends_with("/quarantine");
        let path = |name: &String| format!("{below}{name}{}", if is_quarantine { "/about" } else { "" });
        let mut there: Vec<String> = names.iter().map(path).collect();
        if folder == "jobs" {
            // The latest jobs are of most interest. All names have the same length, so their order is that of creation.
            there.reverse();
            self.latest = there.iter().take(LATEST_MAX).cloned().collect();
        }
        let names: BTreeSet<&String> = there.iter().collect();
        let is_child = |path: &String| {
            let rest = path.strip_prefix(&below).map(|rest| rest.strip_suffix("/about").unwrap_or(rest));
            rest.is_some_and(|rest| !rest.contains('/'))
        };
        let known = self.known.range(below.clone()..).take_while(|path| path.starts_with(&below));
        let gone: Vec<String> =
            known.filter(|path| is_child(path) && !names.contains(path)).cloned().collect();
        let mut listed = Listed::default();
        for path in &there {
            if self.changed(path) {
                listed.named.push(path.clone());
            }
        }
        for path in gone {
            if folder == "jobs" {
                // Nothing below the job will be listed.
                let inside = format!("{path}/");
                let inside = self.known.range(inside.clone()..).take_while(|path| path.starts_with(&inside));
                listed.gone.extend(inside.cloned());
            }
            listed.gone.push(path);
        }
        for path in &listed.gone {
            self.known.remove(path);
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixtures::record;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn all(reading: &mut Reading) -> Vec<Work> {
        std::iter::from_fn(|| reading.next()).collect()
    }

    #[test]
    fn repeatedly_changed_znode_is_read_once() {
        let mut reading = Reading::default();
        for _ in 0..9 {
            assert!(!reading.changed("members/n1"));
            assert!(!reading.changed("jobs/j/vars/x"), "that is of no interest");
        }
        assert_eq!(all(&mut reading), [Work::Read("members/n1".to_owned())]);
        reading.changed("members/n1");
        assert!(reading.has_work());
    }

    #[test]
    fn tasks_are_counted_at_ticks_only() {
        let mut reading = Reading::default();
        for task in ["n1-0", "n1-1"] {
            assert!(!reading.changed(&format!("jobs/j/attempts/2/list/{task}")));
        }
        assert!(!reading.gone("jobs/j/attempts/2/list/n1-0"));
        assert!(!reading.has_work());
        reading.tick();
        assert_eq!(all(&mut reading), [Work::Count("jobs/j/attempts/2/list".to_owned())]);
    }

    #[test]
    fn members_are_read_after_enrolled_nodes_and_before_departed_nodes() {
        let mut reading = Reading::default();
        reading.begin();
        reading.job("jobs/j", &record());
        assert!(all(&mut reading).contains(&Work::List("jobs/j/attempts/2/outputs".to_owned())));
        assert!(reading.advance());
        assert_eq!(all(&mut reading), [Work::List("members".to_owned())]);
        assert!(reading.advance());
        assert_eq!(all(&mut reading), [Work::List("jobs/j/attempts/2/left".to_owned())]);
        assert!(!reading.advance());
    }

    #[test]
    fn reports_are_read_only_for_jobs_in_scope() {
        for (scope, wanted) in [
            (Scope::Records, [false, false]),
            (Scope::Job("j2".to_owned()), [false, true]),
            (Scope::Current, [true, true]),
        ] {
            let mut reading = Reading::of(scope.clone());
            let wants = ["jobs/j1", "jobs/j2"].map(|job| {
                reading.job(job, &record());
                !all(&mut reading).is_empty()
            });
            assert_eq!(wants, wanted, "{scope:?}");
        }
    }

    #[test]
    fn unlisted_znodes_are_gone() {
        let mut reading = Reading::default();
        let listed = reading.listed("drain", &names(&["n1", "n2"]));
        assert_eq!(listed.named, ["drain/n1", "drain/n2"]);
        let listed = reading.listed("drain", &names(&["n2", "n3"]));
        assert_eq!((listed.gone, listed.named), (names(&["drain/n1"]), names(&["drain/n3"])));
        for path in ["jobs/j1", "jobs/j1/figures/n1", "jobs/j2"] {
            assert!(reading.is_there(path));
        }
        assert_eq!(reading.listed("jobs", &names(&["j2"])).gone, ["jobs/j1/figures/n1", "jobs/j1"]);
    }

    #[test]
    fn nodes_of_old_finished_jobs_are_not_read() {
        let mut reading = Reading::default();
        reading.listed("jobs", &names(&["j1", "j2", "j3", "j4", "j5"]));
        let first = all(&mut reading).into_iter().next();
        assert_eq!(first, Some(Work::Read("jobs/j5".to_owned())), "the latest first");
        let over = JobRecord { state: zk::job::JobState::Done, ..record() };
        reading.job("jobs/j1", &over);
        assert_eq!(all(&mut reading), []);
        for (job, record) in [("jobs/j1", record()), ("jobs/j3", over)] {
            reading.job(job, &record);
            assert_eq!(all(&mut reading)[0], Work::List(format!("{job}/figures")));
            reading.job(job, &record);
            assert!(!reading.has_work(), "it was listed before");
        }
    }
}
