//! A picture of a program: groups of calls, and arrows from writers to readers.

use std::{cmp::Reverse, collections::BTreeSet};

use serde::{Deserialize, Serialize};
use taskwork::display::{Picture, count};

use crate::calls::{Call, State};

/// The maximum size of the pictures of the graph of a finished program, in bytes: the timeline and the tables need some
/// room.
const PICTURES_BYTES_MAX: usize = 170 << 10;

/// A bounded picture of a program's calls. See [`Calls::diagram`](crate::Calls::diagram).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Diagram {
    /// Groups of calls.
    pub groups: Vec<Group>,
    /// The dependencies between groups.
    pub arrows: Vec<Arrow>,
    /// The groups with the calls of the critical path, in the order of the path; empty if it is unknown.
    pub path: Vec<usize>,
    /// The number of arrows omitted because of the limit.
    pub arrows_omitted: u64,
    /// The number of calls omitted because of the limit.
    pub omitted: u64,
}

/// Calls of one task and about one level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The name of the task.
    pub task: String,
    /// Its row. The groups that it reads from are in the same row or in earlier ones.
    pub row: u32,
    /// The lowest and the highest level of its calls.
    pub levels: (u32, u32),
    /// The number of its calls.
    pub calls: u64,
    /// The lowest number of its calls.
    pub first: u64,
    /// The number of calls in each [state](State::ALL).
    pub states: [u64; 5],
    /// The number of dependencies between its own calls.
    pub within: u64,
}

/// The dependencies of one group on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrow {
    /// The position of the group that writes.
    pub from: usize,
    /// The position of the group that reads.
    pub to: usize,
    /// The number of inputs.
    pub reads: u64,
}

impl Group {
    pub(crate) fn new(task: String, row: u32, call: &Call) -> Self {
        let levels = (call.level, call.level);
        Self { task, row, levels, calls: 0, first: call.number, states: [0; 5], within: 0 }
    }

    pub(crate) fn add(&mut self, call: &Call) {
        self.calls += 1;
        self.first = self.first.min(call.number);
        self.levels = (self.levels.0.min(call.level), self.levels.1.max(call.level));
        self.states[call.state.index()] += 1;
    }

    /// Returns the state that determines the colour: the most urgent state of its calls.
    pub fn state(&self) -> State {
        let order = [State::Failed, State::Running, State::Ready, State::Waiting];
        order.into_iter().find(|state| self.states[state.index()] > 0).unwrap_or(State::Ended)
    }

    /// Returns the text of its box: the task, with the number of the call, or the number of calls.
    pub(crate) fn label(&self) -> String {
        match self.calls {
            1 => format!("{} #{}", self.task, self.first),
            calls => format!("{} × {}", self.task, count(calls)),
        }
    }

    /// Returns its details as text.
    pub(crate) fn description(&self) -> String {
        let levels = match self.levels {
            (least, most) if least == most => format!("level {least}"),
            (least, most) => format!("levels {least} to {most}"),
        };
        let states = State::ALL.into_iter().filter(|state| self.states[state.index()] > 0);
        let states = states.map(|state| format!("{} {}", count(self.states[state.index()]), state.name()));
        let states: Vec<_> = states.collect();
        format!("{}, {levels}: {}", self.label(), states.join(", "))
    }
}

impl Diagram {
    /// Returns the graph as SVG and as DOT, without so many of the thin arrows that it can be published.
    pub fn pictures(mut self) -> Vec<Picture> {
        let mut arrows_max = self.arrows.len();
        loop {
            let label = "the graph of the calls";
            let pictures = vec![
                Picture::svg("graph.svg", label, self.svg()),
                Picture::dot("graph.dot", label, self.dot()),
            ];
            if pictures.iter().map(|picture| picture.content.len()).sum::<usize>() <= PICTURES_BYTES_MAX {
                return pictures;
            }
            if arrows_max == 0 {
                return Vec::new();
            }
            arrows_max /= 2;
            self.keep_strongest(arrows_max);
        }
    }

    /// Returns the arrows of the critical path, as positions of groups.
    pub(crate) fn steps(&self) -> BTreeSet<(usize, usize)> {
        self.path.windows(2).map(|step| (step[0], step[1])).collect()
    }

    /// Returns the number of calls in it.
    pub fn calls(&self) -> u64 {
        self.groups.iter().map(|group| group.calls).sum()
    }

    /// Keeps the arrows of the critical path, and those that stand for the most inputs.
    pub(crate) fn keep_strongest(&mut self, arrows_max: usize) {
        if self.arrows.len() > arrows_max {
            let steps = self.steps();
            let is_step = |arrow: &Arrow| steps.contains(&(arrow.from, arrow.to));
            self.arrows.sort_by_key(|arrow| (!is_step(arrow), Reverse(arrow.reads), arrow.from, arrow.to));
            self.arrows_omitted += (self.arrows.len() - arrows_max) as u64;
            self.arrows.truncate(arrows_max);
        }
    }

    /// Returns the caption of the picture.
    pub(crate) fn caption(&self) -> String {
        let omitted = match self.omitted {
            0 => String::new(),
            omitted => format!(", the first ones; {} later ones are not shown", count(omitted)),
        };
        let arrows_omitted = match self.arrows_omitted {
            0 => String::new(),
            omitted => format!("; {} thin arrows are not shown", count(omitted)),
        };
        format!("{} calls{omitted}{arrows_omitted}", count(self.calls()))
    }

    /// Returns the arrows between existing groups; a picture from another process may contain others.
    pub(crate) fn sound_arrows(&self) -> impl Iterator<Item = &Arrow> {
        self.arrows.iter().filter(|arrow| arrow.from.max(arrow.to) < self.groups.len())
    }
}

#[cfg(test)]
mod tests {
    use taskwork::display::JobDisplay;

    use super::{Arrow, Diagram, Group, PICTURES_BYTES_MAX};
    use crate::calls::{Call, State};

    fn group(states: &[State]) -> Group {
        let call = |state| Call { number: 7, task: 0, level: 3, state };
        let mut group = Group::new("task".to_owned(), 3, &call(State::Waiting));
        for state in states {
            group.add(&call(*state));
        }
        group
    }

    #[test]
    fn group_has_most_urgent_state_of_its_calls() {
        assert_eq!(group(&[State::Ended, State::Running, State::Failed]).state(), State::Failed);
        assert_eq!(group(&[State::Ended, State::Waiting, State::Ready]).state(), State::Ready);
        assert_eq!(group(&[State::Ended]).state(), State::Ended);
        let told = group(&[State::Ended, State::Ended, State::Running]).description();
        assert_eq!(told, "task × 3, level 3: 1 running, 2 ended");
    }

    #[test]
    fn pictures_of_large_graph_fit_into_limit() {
        let groups = vec![group(&[State::Ended, State::Running]); 300];
        let arrows =
            (0..2_000).map(|at| Arrow { from: at % 300, to: at * 7 % 300, reads: 1_000 + at as u64 });
        let diagram = Diagram { groups, arrows: arrows.collect(), ..Diagram::default() };
        let small = Diagram { arrows: diagram.arrows[..100].to_vec(), ..diagram.clone() };
        for (diagram, is_whole) in [(small, true), (diagram, false)] {
            let pictures = diagram.pictures();
            assert_eq!(
                pictures.iter().map(|picture| picture.name.as_str()).collect::<Vec<_>>(),
                ["graph.svg", "graph.dot"]
            );
            let bytes: usize = pictures.iter().map(|picture| picture.content.len()).sum();
            assert!(
                bytes <= PICTURES_BYTES_MAX && pictures[0].content.matches("<g>").count() == 300,
                "{bytes}"
            );
            assert_eq!(!pictures[0].content.contains("thin arrows are not shown"), is_whole);
            let display = pictures.into_iter().fold(JobDisplay::new(), JobDisplay::picture);
            assert_eq!(
                JobDisplay::read(&serde_json::to_value(&display).unwrap()),
                Some(display),
                "all are accepted"
            );
        }
    }

    #[test]
    fn strongest_arrows_are_kept_at_limit() {
        let arrows = (1..=5).map(|reads| Arrow { from: 0, to: 0, reads }).collect();
        let mut diagram = Diagram { groups: vec![group(&[])], arrows, ..Diagram::default() };
        diagram.keep_strongest(2);
        assert_eq!(diagram.arrows.iter().map(|arrow| arrow.reads).collect::<Vec<_>>(), [5, 4]);
        assert!(diagram.caption().contains("3 thin arrows"));
    }
}
