//! The programs that an agent needs, each with its jobs and its state. Pure: no clock, no file, no process.
//!
//! ```text
//!   Wanted ─▶ Fetching ─▶ Kept ─▶ Starting ─▶ Runs ─▶ Kept
//!                │                   │          │
//!                └────── a failure: Until ◀─────┘        then Kept or Wanted
//! ```
//!
//! The queue lists a job once, and skips it from then on. Whenever a program could be started, the jobs of all programs
//! that wait are forgotten, so that the queue lists those that are still open, in its order. A program without a listed
//! job is neither fetched nor started.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use taskwork::{JobId, companion::ObjectName};
use tokio::time::Instant;

use super::cache::Pinned;

/// The pauses before a program that has failed is tried again: the first one, which is doubled each time, and the longest.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The programs of listed jobs.
#[derive(Debug, Default)]
pub(super) struct Table {
    programs: BTreeMap<ObjectName, Program>,
    /// The jobs that the queue skips: those of the programs, and refused ones.
    aside: BTreeSet<String>,
    /// The jobs whose submitter is refused, and the time of the next check.
    refused: BTreeMap<String, Instant>,
    /// The number of programs so far.
    added: u64,
}

/// A program that a job needs.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) state: State,
    /// The job by which it became known, for messages.
    pub(super) job: JobId,
    pub(super) release: (String, String),
    /// The file, if it is in the folder; it is not removed while this exists.
    pub(super) file: Option<Pinned>,
    /// The listed jobs.
    jobs: BTreeSet<String>,
    /// The jobs of a node that has left by itself. If one is listed again, the node has left although it was open.
    left: BTreeSet<String>,
    failures: u32,
    /// The jobs that were listed before the last failure.
    tried: BTreeSet<String>,
    /// The order in which programs became known.
    order: u64,
    pub(super) notifying: Notifying,
}

/// The state of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is to be fetched.
    Wanted,
    /// It is being fetched, or verified for the first time.
    Fetching,
    /// It is in the folder, and can be started.
    Kept,
    /// It is verified again, and starts after that in a free slot.
    Starting,
    /// Its node runs in this slot.
    Runs(usize),
    /// It has failed.
    Until(Instant),
}

/// Whether submitters are being notified that the program is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notifying {
    No,
    Yes,
    /// Yes, and once more after that, since a new submitter may have been missed.
    Again,
}

impl Table {
    /// Returns the jobs that the queue skips.
    pub(super) fn aside(&self) -> &BTreeSet<String> {
        &self.aside
    }

    pub(super) fn program(&mut self, name: ObjectName) -> Option<&mut Program> {
        self.programs.get_mut(&name)
    }

    /// Returns the programs in the folder.
    pub(super) fn here(&self) -> Vec<ObjectName> {
        let here = self.programs.iter().filter(|(_, program)| program.file.is_some());
        here.map(|(&name, _)| name).collect()
    }

    /// Returns the programs in a state.
    pub(super) fn in_state(&self, state: State) -> Vec<ObjectName> {
        let in_state = self.programs.iter().filter(|(_, program)| program.state == state);
        in_state.map(|(&name, _)| name).collect()
    }

    /// Adds a listed job of an accepted submitter. Returns a pause if a node of the program has left by itself although
    /// the job is open: then it is not started before that.
    pub(super) fn add(
        &mut self,
        name: ObjectName,
        job: &JobId,
        release: (String, String),
        now: Instant,
    ) -> Option<Duration> {
        self.refused.remove(job.as_str());
        self.aside.insert(job.as_str().to_owned());
        let added = &mut self.added;
        let program = self.programs.entry(name).or_insert_with(|| {
            *added += 1;
            Program::new(job.clone(), release, *added)
        });
        program.jobs.insert(job.as_str().to_owned());
        // The submitter of a new job has the file that no other member has sent.
        if matches!(program.state, State::Until(_))
            && program.file.is_none()
            && !program.tried.contains(job.as_str())
        {
            program.state = State::Wanted;
        }
        if !program.left.contains(job.as_str()) {
            return None;
        }
        program.left.clear();
        (program.state == State::Kept).then(|| program.fail(now))
    }

    /// Adds a listed job whose submitter is refused until a time. Returns whether it was not refused before.
    pub(super) fn refuse(&mut self, job: &JobId, until: Instant) -> bool {
        self.aside.insert(job.as_str().to_owned());
        self.refused.insert(job.as_str().to_owned(), until).is_none()
    }

    /// Records that a program has failed, and returns the pause before it is tried again.
    pub(super) fn fail(&mut self, name: ObjectName, now: Instant) -> Duration {
        self.programs.get_mut(&name).map_or(RETRY_MIN, |program| program.fail(now))
    }

    /// Records that a program runs in a slot.
    pub(super) fn start(&mut self, name: ObjectName, slot: usize) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        program.state = State::Runs(slot);
        program.tried.clear();
        // No job was listed again that was open when the last node left.
        if !program.left.is_empty() {
            program.left.clear();
            program.failures = 0;
        }
    }

    /// Records that the node of a program has left by itself.
    pub(super) fn leave(&mut self, name: ObjectName) {
        if let Some(program) = self.programs.get_mut(&name) {
            program.left.clone_from(&program.jobs);
            program.state = State::Kept;
        }
        self.forget_waiting();
    }

    /// Lets the queue list the jobs of programs that wait for a slot again.
    pub(super) fn forget_waiting(&mut self) {
        for program in self.programs.values_mut().filter(|program| program.state == State::Kept) {
            program.forget(&mut self.aside);
        }
    }

    /// Returns the next program to fetch, if `fits`: those that have failed least, and of these the first one.
    pub(super) fn next_wanted(&self, mut fits: impl FnMut(ObjectName) -> bool) -> Option<ObjectName> {
        let mut wanted = self.with_jobs(State::Wanted);
        wanted.sort_by_key(|(_, program)| (program.failures, program.order));
        wanted.into_iter().map(|(name, _)| name).find(|&name| fits(name))
    }

    /// Returns the next program to start: in the same order.
    pub(super) fn next_kept(&self) -> Option<ObjectName> {
        let kept = self.with_jobs(State::Kept).into_iter();
        kept.min_by_key(|(_, program)| (program.failures, program.order)).map(|(name, _)| name)
    }

    fn with_jobs(&self, state: State) -> Vec<(ObjectName, &Program)> {
        let programs = self.programs.iter().filter(|(_, program)| program.state == state);
        programs
            .filter(|(_, program)| !program.jobs.is_empty())
            .map(|(&name, program)| (name, program))
            .collect()
    }

    /// Returns the time of the next retry.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let until =
            |program: &Program| if let State::Until(until) = program.state { Some(until) } else { None };
        let refused =
            self.refused.iter().filter(|(job, _)| self.aside.contains(*job)).map(|(_, &until)| until);
        self.programs.values().filter_map(until).chain(refused).min()
    }

    /// Lets the queue list the jobs again whose programs or submitters are to be tried again.
    pub(super) fn retry(&mut self, now: Instant) {
        for program in self.programs.values_mut() {
            if matches!(program.state, State::Until(until) if until <= now) {
                program.state = if program.file.is_some() { State::Kept } else { State::Wanted };
                program.forget(&mut self.aside);
            }
        }
        for (job, _) in self.refused.iter().filter(|(_, until)| **until <= now) {
            self.aside.remove(job);
        }
    }

    /// Drops programs and refusals whose jobs were not listed since the last call, and lets the queue list all jobs again.
    pub(super) fn sweep(&mut self) {
        let aside = &self.aside;
        self.refused.retain(|job, _| aside.contains(job));
        self.programs.retain(|_, program| {
            let works = matches!(program.state, State::Fetching | State::Starting | State::Runs(_));
            works || !program.jobs.is_empty()
        });
        for program in self.programs.values_mut() {
            program.forget(&mut self.aside);
        }
    }
}

impl Program {
    fn new(job: JobId, release: (String, String), order: u64) -> Self {
        Self {
            state: State::Wanted,
            job,
            release,
            file: None,
            jobs: BTreeSet::new(),
            left: BTreeSet::new(),
            failures: 0,
            tried: BTreeSet::new(),
            order,
            notifying: Notifying::No,
        }
    }

    fn fail(&mut self, now: Instant) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.tried.extend(self.jobs.iter().cloned());
        let retry = RETRY_MIN.saturating_mul(1 << (self.failures - 1).min(10)).min(RETRY_MAX);
        self.state = State::Until(now + retry);
        retry
    }

    fn forget(&mut self, aside: &mut BTreeSet<String>) {
        for job in std::mem::take(&mut self.jobs) {
            aside.remove(&job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(number: u8) -> ObjectName {
        format!("3-{}", format!("{number:02x}").repeat(32)).parse().unwrap()
    }

    fn job(number: u32) -> JobId {
        format!("j-{number:010}").parse().unwrap()
    }

    fn add(table: &mut Table, program: u8, number: u32, now: Instant) -> Option<Duration> {
        table.add(name(program), &job(number), ("tree".to_owned(), program.to_string()), now)
    }

    fn set(table: &mut Table, program: u8, state: State) {
        table.program(name(program)).unwrap().state = state;
    }

    #[test]
    fn jobs_of_one_program_are_fetched_and_retried_once() {
        let (mut table, now) = (Table::default(), Instant::now());
        for number in 0..100 {
            assert_eq!(add(&mut table, 1, number, now), None);
        }
        assert_eq!(table.next_wanted(|_| true), Some(name(1)));
        set(&mut table, 1, State::Fetching);
        assert_eq!((table.next_wanted(|_| true), table.in_state(State::Fetching)), (None, vec![name(1)]));
        table.start(name(1), 0);
        // Its node exits with an error: one pause, however many jobs it has.
        for (failures, pause_s) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            assert_eq!(table.fail(name(1), now).as_secs(), pause_s, "{failures}");
            assert_eq!((table.next_kept(), table.next_wanted(|_| true)), (None, None));
        }
        assert_eq!((table.aside().len(), table.next_due()), (100, Some(now + 60 * SECOND)));
        table.retry(now + 60 * SECOND);
        assert!(table.aside().is_empty(), "the queue lists the jobs that are still open");
    }

    #[test]
    fn node_that_leaves_although_its_job_is_open_is_restarted_after_pauses() {
        let (mut table, now) = (Table::default(), Instant::now());
        for pause_s in [1, 2, 4] {
            assert_eq!(add(&mut table, 1, 1, now), None);
            table.start(name(1), 0);
            table.leave(name(1));
            assert_eq!(table.next_kept(), None, "no job was listed since then");
            assert_eq!(add(&mut table, 1, 1, now), Some(Duration::from_secs(pause_s)));
            // During that pause another program gets the slot.
            add(&mut table, 2, 2, now);
            set(&mut table, 2, State::Kept);
            assert_eq!(table.next_kept(), Some(name(2)));
            set(&mut table, 2, State::Fetching);
            table.retry(now + 100 * SECOND);
            set(&mut table, 1, State::Kept);
        }
        // It leaves after its last job, and a later job starts it at once, without the failures before.
        add(&mut table, 1, 1, now);
        table.start(name(1), 0);
        table.leave(name(1));
        assert_eq!((add(&mut table, 1, 3, now), table.next_kept()), (None, Some(name(1))));
        table.start(name(1), 0);
        assert_eq!(table.fail(name(1), now), SECOND);
    }

    #[test]
    fn programs_without_owner_do_not_delay_a_new_one() {
        let (mut table, now) = (Table::default(), Instant::now());
        for orphan in 0..70 {
            add(&mut table, orphan, orphan.into(), now);
            table.fail(name(orphan), now);
        }
        table.retry(now + SECOND);
        for orphan in 0..70 {
            add(&mut table, orphan, orphan.into(), now);
        }
        add(&mut table, 70, 70, now);
        assert_eq!(table.next_wanted(|_| true), Some(name(70)));
        assert_eq!(table.next_wanted(|next| next != name(70)), Some(name(0)), "the first one that fits");
    }

    #[test]
    fn program_that_is_submitted_again_is_fetched_at_once() {
        let (mut table, now) = (Table::default(), Instant::now());
        for time in 0..10 {
            add(&mut table, 1, 1, now);
            table.fail(name(1), now);
            add(&mut table, 1, 1, now);
            assert_eq!(table.next_wanted(|_| true), None, "{time}");
            table.retry(now + 60 * SECOND);
        }
        add(&mut table, 1, 1, now);
        table.fail(name(1), now);
        add(&mut table, 1, 2, now);
        assert_eq!(table.next_wanted(|_| true), Some(name(1)));
    }

    #[test]
    fn refused_job_is_checked_again_and_reported_once() {
        let (mut table, now) = (Table::default(), Instant::now());
        assert!(table.refuse(&job(1), now + SECOND));
        assert_eq!((table.aside().len(), table.next_due()), (1, Some(now + SECOND)));
        table.retry(now + SECOND);
        assert_eq!((table.aside().len(), table.next_due()), (0, None));
        assert!(!table.refuse(&job(1), now + 2 * SECOND));
        table.retry(now + 2 * SECOND);
        assert_eq!(add(&mut table, 1, 1, now), None, "its certificate is valid now");
        assert!(table.refuse(&job(1), now), "this is another refusal");
    }

    #[test]
    fn programs_whose_jobs_are_over_are_dropped_unless_they_run() {
        let (mut table, now) = (Table::default(), Instant::now());
        for program in 1..=3 {
            add(&mut table, program, program.into(), now);
        }
        table.start(name(1), 0);
        set(&mut table, 2, State::Kept);
        table.sweep();
        assert!(table.aside().is_empty());
        add(&mut table, 2, 2, now);
        table.sweep();
        assert!(table.program(name(1)).is_some() && table.program(name(2)).is_some());
        assert!(table.program(name(3)).is_none());
        table.sweep();
        assert!(table.program(name(2)).is_none());
    }
}
