//! The reports of a workflow node to the program task.

use super::{Progress, Station, Told};
use crate::task::Tasks;

/// Returns a node on which the program has returned this output.
fn returned(result: Result<Vec<u8>, String>) -> Station {
    let station = Station::new(Tasks::default());
    station.lock().program = Progress::Returned(result);
    station
}

fn tell(station: &Station) -> Told {
    station.tell(|| unreachable!("there is nothing to wait for"))
}

#[test]
fn result_is_reported_to_both_instances_of_the_program_task() {
    let station = returned(Ok(vec![1]));
    for _ in 0..2 {
        assert!(matches!(tell(&station), Told::Returned(Ok(result)) if result == [1]));
    }
}

#[test]
fn failed_program_restarts_on_next_request() {
    let station = returned(Err("there is no disk".to_owned()));
    assert!(matches!(tell(&station), Told::Returned(Err(_))));
    assert!(matches!(tell(&station), Told::Begin));
}
