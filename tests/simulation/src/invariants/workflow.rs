//! The invariants of workflows, by their numbers in [the design](../../../docs/correctness.md#workflows). They observe
//! which calls begin and end on which node, which versions come to be where, and what the program reads.

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

/// Returns the step of a workflow that was seen, and where.
fn step<'a>(seen: &Seen<'a>) -> Option<(NodeId, &'a Step)> {
    match seen {
        Seen::Workflow { node, step } => Some((*node, step)),
        _ => None,
    }
}
