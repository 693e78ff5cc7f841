//! The reports of a workflow node to the program task.

use super::{super::output::ProgramOutput, Progress, Told, WorkflowNode};
use crate::task::Tasks;

/// Returns a node on which the program has returned this output.
fn returned(result: Result<ProgramOutput, String>) -> WorkflowNode {
    let station = WorkflowNode::new(Tasks::default());
    station.lock().program = Progress::Returned(result);
    station
}

fn tell(station: &WorkflowNode) -> Told {
    station.tell(|| unreachable!("there is nothing to wait for"))
}

#[test]
fn result_is_delivered_to_both_copies_of_the_task() {
    let output = ProgramOutput::new(&1).unwrap();
    let station = returned(Ok(output.clone()));
    for _ in 0..2 {
        assert!(matches!(tell(&station), Told::Returned(Ok(result)) if result == output));
    }
}

#[test]
fn failed_program_restarts_on_next_request() {
    let station = returned(Err("there is no disk".to_owned()));
    assert!(matches!(tell(&station), Told::Returned(Err(_))));
    assert!(matches!(tell(&station), Told::Begin));
}
