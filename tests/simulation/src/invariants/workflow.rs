//! The invariants of workflows, by their numbers in [the design](../../../docs/correctness.md#workflows).
//! They observe the calls that start and end on each node, the versions on each node, and the program's
//! reads.

pub(super) mod f1_answer;
pub(super) mod f2_one_value;
pub(super) mod f3_inputs;
pub(super) mod f4_taken_in;
pub(super) mod f5_needed;
pub(super) mod f7_workers;
pub(super) mod f8_stale;

use dataflow_framework::simulation::Seen as Step;
use taskwork::NodeId;

use super::Seen;

/// Returns an observed step of a workflow, and its node.
fn step<'a>(seen: &Seen<'a>) -> Option<(NodeId, &'a Step)> {
    match seen {
        Seen::Workflow { node, step } => Some((*node, step)),
        _ => None,
    }
}
