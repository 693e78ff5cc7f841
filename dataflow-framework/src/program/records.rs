//! Facts for the journal of a program, and its decisions.

use std::collections::BTreeMap;

use crate::{
    core::{Choice, Decision, Fact},
    ids::VersionId,
};

/// The maximum size of one entry of the journal, in bytes, unless a single fact is larger.
const ENTRY_BYTES_MAX: usize = 8 << 20;

/// The maximum number of facts in one entry.
const ENTRY_FACTS_MAX: usize = 100_000;

/// Facts that are written in order, many at a time, and the decisions of the program.
#[derive(Debug, Default)]
pub(crate) struct Records {
    waiting: Vec<Fact>,
    /// The facts of the entry being written.
    under_way: Vec<Fact>,
    /// The number of facts added so far, and of those written.
    told: u64,
    written: u64,
    /// The decisions of this run, and of earlier ones.
    decisions: BTreeMap<u64, Decision>,
    /// The number of the next decision of this run.
    next: u64,
    /// The versions that this run leaves to the next one.
    kept: BTreeMap<VersionId, Fact>,
}

/// The record of a decision that the program reaches.
pub(super) enum Decided {
    /// It is made now, and has this number.
    Now(u64),
    Before(Choice),
    /// The program has made another decision before, at this point or at another one.
    Otherwise(Decision),
}

impl Records {
    /// Adds a fact, and returns its number, from 1.
    pub(super) fn tell(&mut self, fact: Fact) -> u64 {
        if let Fact::Kept { version, .. } = fact {
            self.kept.insert(version, fact.clone());
        }
        self.waiting.push(fact);
        self.told += 1;
        self.told
    }

    /// Returns whether all facts up to this number are written.
    pub(super) fn is_written(&self, number: u64) -> bool {
        self.written >= number
    }

    /// Returns whether everything is written.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Returns the next facts to write, as one entry.
    pub(super) fn begin(&mut self) -> Vec<Fact> {
        debug_assert!(self.under_way.is_empty(), "entries are written one after another");
        let count = fitting(&self.waiting);
        self.under_way = self.waiting.drain(..count).collect();
        self.under_way.clone()
    }

    /// Marks the entry as written, and returns its facts.
    pub(super) fn end(&mut self) -> Vec<Fact> {
        let written = std::mem::take(&mut self.under_way);
        self.written += written.len() as u64;
        written
    }

    /// Restores a decision of an earlier run.
    pub(super) fn recall(&mut self, decision: Decision) {
        self.keep(decision);
    }

    /// Keeps a decision. Later ones that led to it are part of it.
    fn keep(&mut self, decision: Decision) {
        drop(self.decisions.split_off(&decision.number));
        self.decisions.insert(decision.number, decision);
    }

    /// Returns all decisions that were made.
    pub(super) fn decisions(&self) -> impl Iterator<Item = Fact> {
        self.decisions.values().cloned().map(Fact::Decided)
    }

    /// Returns the versions that this run leaves to the next one.
    pub(super) fn kept(&self) -> impl Iterator<Item = Fact> {
        self.kept.values().cloned()
    }

    /// Returns the record of the next decision of the program.
    pub(super) fn decided(&mut self, at: u64, what: &str) -> Decided {
        let number = self.next;
        self.next += 1;
        match self.decisions.get(&number) {
            None => Decided::Now(number),
            Some(before) if before.at == at && before.what == what => Decided::Before(before.choice.clone()),
            Some(before) => Decided::Otherwise(before.clone()),
        }
    }

    /// Adds a decision of the program, and returns the number of the fact.
    pub(super) fn decide(&mut self, decision: Decision) -> u64 {
        self.next = decision.number + 1;
        self.keep(decision.clone());
        self.tell(Fact::Decided(decision))
    }
}

/// Returns how many facts of this non-empty list fit into one entry.
fn fitting(facts: &[Fact]) -> usize {
    let mut bytes = 0;
    let fits = |fact: &&Fact| {
        bytes += fact.bytes();
        bytes <= ENTRY_BYTES_MAX
    };
    let count = facts.iter().take(ENTRY_FACTS_MAX).take_while(fits).count();
    count.max(1).min(facts.len())
}

pub(crate) fn entries(mut facts: &[Fact]) -> Vec<&[Fact]> {
    let mut entries = Vec::new();
    while !facts.is_empty() {
        let (entry, rest) = facts.split_at(fitting(facts));
        entries.push(entry);
        facts = rest;
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::{Decided, ENTRY_BYTES_MAX, Records, entries};
    use crate::{
        core::{Choice, Decision, Fact, Mark},
        ids::VersionId,
    };

    fn value(number: u64, what: &str) -> Decision {
        Decision { number, at: 0, what: what.to_owned(), choice: Choice::Value(Vec::new()) }
    }

    fn large() -> Fact {
        Fact::Failed { call: 0, reason: "x".repeat(ENTRY_BYTES_MAX / 2).into() }
    }

    #[test]
    fn journal_entry_exceeds_its_maximum_only_for_a_single_fact() {
        let facts = [
            vec![large(); 5],
            vec![Fact::Failed { call: 0, reason: "x".repeat(2 * ENTRY_BYTES_MAX).into() }],
        ];
        let sizes: Vec<_> = entries(&facts.concat()).iter().map(|entry| entry.len()).collect();
        assert_eq!(sizes, [2, 2, 1, 1]);
        assert!(entries(&[]).is_empty());
        let mut records = Records::default();
        for number in 1..=3 {
            assert_eq!(records.tell(large()), number);
        }
        assert_eq!((records.begin().len(), records.end().len()), (2, 2));
        assert!(records.is_written(2) && !records.is_written(3) && !records.is_empty());
        assert_eq!((records.begin().len(), records.end().len()), (1, 1));
        assert!(records.is_written(3) && records.is_empty());
    }

    #[test]
    fn versions_left_to_the_next_run_stay_after_writing() {
        let version = VersionId { call: 3, slot: 0 };
        let kept = |value| Fact::Kept { version, mark: Mark::default(), value: vec![value] };
        let mut records = Records::default();
        for value in [1, 2] {
            records.tell(kept(value));
            records.begin();
            records.end();
        }
        assert_eq!(records.kept().collect::<Vec<_>>(), [kept(2)]);
    }

    #[test]
    fn inner_decisions_are_part_of_the_outer_one() {
        let mut first = Records::default();
        let facts = {
            let Decided::Now(outer) = first.decided(0, "outer") else { panic!("the decision is new") };
            let Decided::Now(inner) = first.decided(0, "inner") else { panic!("the decision is new") };
            assert_eq!((outer, inner), (0, 1));
            first.decide(value(inner, "inner"));
            first.decide(value(outer, "outer"));
            let Decided::Now(next) = first.decided(0, "next") else { panic!("the decision is new") };
            assert_eq!(next, 1, "the inner decision is part of the outer one");
            first.begin()
        };
        for written in 0..=facts.len() {
            let mut again = Records::default();
            for fact in &facts[..written] {
                let Fact::Decided(decision) = fact else { panic!("all are decisions: {fact:?}") };
                again.recall(decision.clone());
            }
            let is_known = matches!(again.decided(0, "outer"), Decided::Before(_));
            assert_eq!(is_known, written == 2);
            let next = if is_known { "next" } else { "inner" };
            assert!(!matches!(again.decided(0, next), Decided::Otherwise(_)), "{written} were written");
        }
    }
}
