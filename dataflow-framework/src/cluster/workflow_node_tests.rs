//! The reports of a workflow node to the program task.

use super::{super::output::ProgramOutput, Progress, Told, WorkflowNode};
use crate::task::Tasks;

/// Returns a node on which the program has returned this output.
fn returned(result: Result<ProgramOutput, String>) -> WorkflowNode {
    let workflow_node = WorkflowNode::new(Tasks::default());
    workflow_node.lock().program = Progress::Returned(result);
    workflow_node
}

fn tell(workflow_node: &WorkflowNode) -> Told {
    workflow_node.tell(|| unreachable!("there is nothing to wait for"))
}

#[test]
fn result_is_delivered_to_both_copies_of_the_task() {
    let output = ProgramOutput::new(&1).unwrap();
    let workflow_node = returned(Ok(output.clone()));
    for _ in 0..2 {
        assert!(matches!(tell(&workflow_node), Told::Returned(Ok(result)) if result == output));
    }
}

#[test]
fn failed_program_restarts_on_next_request() {
    let workflow_node = returned(Err("there is no disk".to_owned()));
    assert!(matches!(tell(&workflow_node), Told::Returned(Err(_))));
    assert!(matches!(tell(&workflow_node), Told::Begin));
}
