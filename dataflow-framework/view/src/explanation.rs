//! The state of a single call, with the reasons for waiting.

use std::fmt;

use serde::{Deserialize, Serialize};

use taskwork::display::count;

use crate::calls::State;

/// The state of a call, with the reasons for waiting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The number of the call.
    pub call: u64,
    /// Its task, if it is still known.
    pub task: Option<String>,
    /// Its state.
    #[serde(flatten)]
    pub place: Place,
    /// The number of its failed tries.
    pub failures: u32,
    /// The number of nodes that were lost while it was assigned to them.
    pub losses: u32,
}

/// The state of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Place {
    /// The program has not made the call yet.
    NotMade {
        /// The number that its next call will have.
        next: u64,
    },
    /// It waits for inputs.
    Waits {
        /// The first missing inputs.
        missing: Vec<Input>,
        /// The number of further missing inputs.
        more: u64,
    },
    /// It has failed, and is tried again after a pause.
    Paused,
    /// It waits for a worker.
    Ready {
        /// The number of calls that will start before it.
        before: u64,
        /// The number of nodes that run calls, and are not leaving.
        nodes: u64,
        /// The number of these nodes that can accept a call now.
        with_room: u64,
        /// The limit that lets no other call start now.
        #[serde(default)]
        limit: Option<String>,
        /// The requirements that no node meets; empty if some node meets all.
        lacks: Vec<String>,
    },
    /// It is assigned to a node, and runs there or is next.
    Runs {
        /// The node.
        node: String,
    },
    /// Its outcome is being written to the journal of the job, and is not visible before.
    Recorded,
    /// It has completed.
    Ended,
    /// It, or a call on which it depends, has failed.
    Failed {
        /// Why.
        reason: String,
    },
    /// It is over and forgotten, or the number belongs to imported data.
    Over,
}

/// A missing input of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The call that writes it.
    pub call: u64,
    /// The index among the outputs of this call, from 0.
    pub slot: u32,
    /// The task of this call.
    pub task: Option<String>,
    /// The state of this call.
    pub state: State,
    /// Whether it existed before, was lost, and is being recomputed.
    pub is_made_again: bool,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, task, place, failures, losses } = self;
        match task {
            Some(task) => write!(f, "call {call} of `{task}` {place}")?,
            None => write!(f, "call {call} {place}")?,
        }
        if *failures > 0 {
            write!(f, "\nit has failed {} before", times(*failures))?;
        }
        if *losses > 0 {
            write!(f, "\nit was given to nodes that were lost {}", times(*losses))?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMade { next: 0 } => write!(f, "was not made yet: the program has made none"),
            Self::NotMade { next } => {
                write!(f, "was not made yet: the program has made those up to {}", next - 1)
            }
            Self::Waits { missing, more } => {
                write!(f, "waits for {} of its inputs:", count(missing.len() as u64 + more))?;
                missing.iter().try_for_each(|input| write!(f, "\n  {input}"))?;
                if *more > 0 { write!(f, "\n  and {} more", count(*more)) } else { Ok(()) }
            }
            Self::Paused => write!(f, "has failed, and is tried again after a pause"),
            Self::Ready { lacks, .. } if !lacks.is_empty() => {
                write!(f, "can run on no node that is there: {}", lacks.join("; "))
            }
            Self::Ready { limit: Some(limit), .. } => {
                write!(f, "waits for calls with the limit {limit}: as many as it permits run, or may run")
            }
            Self::Ready { nodes: 0, .. } => write!(f, "could begin, but no node runs calls"),
            Self::Ready { before, nodes, with_room, .. } => write!(
                f,
                "could begin: {} calls come before it, and {} of {} nodes take another call now",
                count(*before),
                count(*with_room),
                count(*nodes),
            ),
            Self::Runs { node } => write!(f, "was given to {node}, which runs it, or will do so next"),
            Self::Recorded => {
                write!(f, "is at its end, which is being written to the journal before anybody sees it")
            }
            Self::Ended => write!(f, "has ended"),
            Self::Failed { reason } => write!(f, "has failed: {reason}"),
            Self::Over => write!(f, "is over, or is data that the program created with Data::new"),
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, slot, task, state, is_made_again } = self;
        let of = task.as_ref().map_or_else(String::new, |task| format!(" of `{task}`"));
        let again = if *is_made_again { ", which makes it again since it was lost" } else { "" };
        write!(f, "what call {call}{of} writes (number {slot}); that call is {}{again}", state.name())
    }
}

fn times(number: u32) -> String {
    match number {
        1 => "once".to_owned(),
        number => format!("{number} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Explanation, Input, Place};
    use crate::State;

    fn said(place: Place) -> String {
        let task = Some("multiply".to_owned());
        Explanation { call: 7, task, place, failures: 2, losses: 0 }.to_string()
    }

    #[test]
    fn explanation_lists_missing_inputs_and_their_writers() {
        let input = Input {
            call: 3,
            slot: 0,
            task: Some("block".to_owned()),
            state: State::Running,
            is_made_again: true,
        };
        let expected = "\
call 7 of `multiply` waits for 12 of its inputs:
  what call 3 of `block` writes (number 0); that call is running, which makes it again since it was lost
  and 11 more
it has failed 2 times before";
        assert_eq!(said(Place::Waits { missing: vec![input], more: 11 }), expected);
    }

    #[test]
    fn explanation_reports_available_nodes() {
        let ready = |nodes, lacks: &[&str]| Place::Ready {
            before: 4,
            nodes,
            with_room: 1,
            limit: None,
            lacks: lacks.iter().map(|lack| (*lack).to_owned()).collect(),
        };
        assert!(
            said(ready(2, &[])).contains("4 calls come before it, and 1 of 2 nodes take another call now")
        );
        assert!(said(ready(0, &[])).contains("no node runs calls"));
        assert!(said(Place::Recorded).contains("written to the journal"));
        assert!(
            said(ready(2, &["no node has 8 cores"])).contains("no node that is there: no node has 8 cores")
        );
    }

    #[test]
    fn explanation_serializes_as_object_with_state() {
        let explanation = Explanation { call: 7, task: None, place: Place::Ended, failures: 0, losses: 0 };
        let json = serde_json::to_value(&explanation).unwrap();
        assert_eq!(json["state"], "ended");
        assert_eq!(serde_json::from_value::<Explanation>(json).unwrap(), explanation);
    }
}
