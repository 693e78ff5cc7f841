//! The recorded calls of a program, and their grouping for a picture.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::diagram::{Arrow, Diagram, Group};

/// The maximum number of recorded calls. Each takes about 20 bytes, and 8 for each of its inputs.
pub const CALLS_MAX: usize = 200_000;

/// The maximum number of recorded inputs. Later calls are not recorded.
pub const READS_MAX: usize = 1_000_000;

/// The maximum number of calls that are drawn individually.
const SINGLE_MAX: usize = 200;

/// The maximum number of groups of calls in a picture.
const GROUPS_MAX: usize = 60;

/// The maximum number of arrows in a picture. Those that stand for the most inputs are kept.
const ARROWS_MAX: usize = 2_000;

/// The calls of a program, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// The names of the tasks.
    pub tasks: Vec<String>,
    /// The calls.
    pub calls: Vec<Call>,
    /// The dependencies between calls, as positions of the writer and the reader.
    pub reads: Vec<(u32, u32)>,
    /// The number of calls that were not recorded because of the limits.
    pub omitted: u64,
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its number.
    pub number: u64,
    /// The position of its task's name.
    pub task: u16,
    /// The length of the longest chain of calls that leads to it.
    pub level: u32,
    /// Its state.
    pub state: State,
}

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// An input does not exist yet.
    Waiting,
    /// It waits for a worker.
    Ready,
    /// It runs on a node.
    Running,
    /// It has completed.
    Ended,
    /// It, or a call on which it depends, has failed.
    Failed,
}

impl State {
    /// All states, in the order in which a call passes through them.
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Ready, Self::Running, Self::Ended, Self::Failed];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }

    /// Returns its position in [`ALL`](Self::ALL).
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Waiting => 0,
            Self::Ready => 1,
            Self::Running => 2,
            Self::Ended => 3,
            Self::Failed => 4,
        }
    }
}

impl Calls {
    /// Groups calls of the same task and about the same level, so that the picture stays readable: up to 200 calls are
    /// drawn individually; more are drawn as at most 60 groups, or one for each task if there are more tasks.
    pub fn diagram(&self) -> Diagram {
        self.drawn(&[])
    }

    /// Returns the same, with a marked path through the calls at these positions.
    pub(crate) fn drawn(&self, path: &[usize]) -> Diagram {
        let levels = self.calls.iter().map(|call| call.level).max().unwrap_or(0);
        let mut band = 1;
        while self.calls.len() > SINGLE_MAX && self.groups(band) > GROUPS_MAX && band <= levels {
            band *= 2;
        }
        let (groups, group_of) = self.grouped(band);
        let mut reads = BTreeMap::new();
        for (writer, reader) in &self.reads {
            let [Some(from), Some(to)] = [writer, reader].map(|call| group_of.get(position(*call)).copied())
            else {
                continue;
            };
            *reads.entry((from, to)).or_insert(0) += 1;
        }
        let mut path: Vec<usize> = path.iter().filter_map(|call| group_of.get(*call).copied()).collect();
        path.dedup();
        let mut diagram = Diagram { groups, path, omitted: self.omitted, ..Diagram::default() };
        for ((from, to), number) in reads {
            if from == to {
                diagram.groups[from].within += number;
            } else {
                diagram.arrows.push(Arrow { from, to, reads: number });
            }
        }
        diagram.keep_strongest(ARROWS_MAX);
        diagram
    }

    /// Returns the number of groups if `band` levels are merged into one.
    fn groups(&self, band: u32) -> usize {
        let keys: std::collections::BTreeSet<_> =
            self.calls.iter().map(|call| (call.level / band, call.task)).collect();
        keys.len()
    }

    /// Returns the groups, and for each call the position of its group.
    fn grouped(&self, band: u32) -> (Vec<Group>, Vec<usize>) {
        let is_single = self.calls.len() <= SINGLE_MAX;
        let mut groups = Vec::<Group>::new();
        let mut by_key = BTreeMap::new();
        let mut group_of = Vec::with_capacity(self.calls.len());
        for (index, call) in self.calls.iter().enumerate() {
            let key = (call.level / band, call.task, if is_single { index } else { 0 });
            let position = *by_key.entry(key).or_insert_with(|| {
                let task = self.tasks.get(usize::from(call.task)).cloned().unwrap_or_default();
                groups.push(Group::new(task, call.level / band, call));
                groups.len() - 1
            });
            groups[position].add(call);
            group_of.push(position);
        }
        (groups, group_of)
    }
}

fn position(call: u32) -> usize {
    usize::try_from(call).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Call, Calls, GROUPS_MAX, State};

    /// Returns a chain of levels with `width` calls of two tasks each, which read the output of the first call before.
    fn program(levels: u32, width: u32) -> Calls {
        let mut calls = Calls { tasks: vec!["first".to_owned(), "other".to_owned()], ..Calls::default() };
        for level in 0..levels {
            for place in 0..width {
                let index = u32::try_from(calls.calls.len()).unwrap();
                let call = Call {
                    number: u64::from(index),
                    task: u16::from(place > 0),
                    level,
                    state: State::Waiting,
                };
                calls.calls.push(call);
                if level > 0 {
                    calls.reads.push(((level - 1) * width, index));
                }
            }
        }
        calls
    }

    #[test]
    fn few_calls_are_drawn_individually() {
        let diagram = program(3, 4).diagram();
        assert_eq!(diagram.groups.len(), 12);
        assert!(diagram.groups.iter().all(|group| group.calls == 1 && group.within == 0));
        assert_eq!(diagram.arrows.len(), 8);
    }

    #[test]
    fn many_calls_are_grouped_without_loss() {
        let calls = program(1_000, 30);
        let diagram = calls.diagram();
        assert!(diagram.groups.len() <= GROUPS_MAX && diagram.groups.len() > GROUPS_MAX / 4);
        assert_eq!(diagram.calls(), 30_000);
        let arrows: u64 = diagram.arrows.iter().map(|arrow| arrow.reads).sum();
        let within: u64 = diagram.groups.iter().map(|group| group.within).sum();
        assert_eq!(arrows + within, 29_970);
        assert!(within > 0, "several levels are in one group");
    }

    #[test]
    fn dependencies_on_unknown_calls_are_ignored() {
        let mut calls = program(2, 2);
        calls.reads.push((0, 99));
        assert_eq!(calls.diagram().arrows.len(), 2);
    }
}
