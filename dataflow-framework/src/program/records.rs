//! What is to be written to the journal of a program, and what it has decided.

use std::collections::BTreeMap;

use crate::core::{Choice, Decision, Fact};

/// The maximum size of one entry of the journal, in bytes, unless a single fact is larger.
const ENTRY_BYTES_MAX: usize = 8 << 20;

/// The maximum number of facts in one entry.
const ENTRY_FACTS_MAX: usize = 100_000;

/// Facts that are written in their order, many at a time, and the decisions of the program.
#[derive(Debug, Default)]
pub(crate) struct Records {
    waiting: Vec<Fact>,
    /// What is being written.
    under_way: Vec<Fact>,
    /// How many facts there were altogether, and how many of them are written.
    told: u64,
    written: u64,
    /// The decisions of this run, and of those before.
    decisions: BTreeMap<u64, Decision>,
    /// The number of the next decision of this run.
    next: u64,
}

/// What is known of a decision when the program comes to it.
pub(super) enum Decided {
    /// It is made now, and has this number.
    Now(u64),
    Before(Choice),
    /// The program has decided something else before, at this point or another one.
    Otherwise(Decision),
}

impl Records {
    /// Adds a fact, and returns its number, from 1.
    pub(super) fn tell(&mut self, fact: Fact) -> u64 {
        self.waiting.push(fact);
        self.told += 1;
        self.told
    }

    /// Returns whether all facts up to this number are written.
    pub(super) fn are_written(&self, number: u64) -> bool {
        self.written >= number
    }

    /// Returns whether everything is written.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Returns the facts that are to be written next, as one entry.
    pub(super) fn begin(&mut self) -> Vec<Fact> {
        debug_assert!(self.under_way.is_empty(), "entries are written one after another");
        let mut bytes = 0;
        let fits = |fact: &Fact| {
            bytes += fact.bytes();
            bytes <= ENTRY_BYTES_MAX
        };
        let count = self.waiting.iter().take(ENTRY_FACTS_MAX).take_while({
            let mut fits = fits;
            move |fact| fits(fact)
        });
        let count = count.count().max(1).min(self.waiting.len());
        self.under_way = self.waiting.drain(..count).collect();
        self.under_way.clone()
    }

    /// Takes in that the entry is written, and returns its facts.
    pub(super) fn end(&mut self) -> Vec<Fact> {
        let written = std::mem::take(&mut self.under_way);
        self.written += written.len() as u64;
        written
    }

    /// Takes in a decision of an earlier run.
    pub(super) fn recalls(&mut self, decision: Decision) {
        self.decisions.insert(decision.number, decision);
    }

    /// Returns all decisions that were made.
    pub(super) fn decisions(&self) -> impl Iterator<Item = Fact> {
        self.decisions.values().cloned().map(Fact::Decided)
    }

    /// Returns what is known of the next decision of the program.
    pub(super) fn decided(&mut self, at: u64, what: &str) -> Decided {
        let number = self.next;
        self.next += 1;
        match self.decisions.get(&number) {
            None => Decided::Now(number),
            Some(before) if before.at == at && before.what == what => Decided::Before(before.choice.clone()),
            Some(before) => Decided::Otherwise(before.clone()),
        }
    }

    /// Adds a decision that the program has made, and returns the number of the fact.
    pub(super) fn decide(&mut self, decision: Decision) -> u64 {
        self.decisions.insert(decision.number, decision.clone());
        self.tell(Fact::Decided(decision))
    }
}
